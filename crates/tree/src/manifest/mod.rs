//! Manifests: the hash and the name of every file of a tree. The line format is the one that `sha256sum`, `b3sum` and
//! `xxhsum` write and check with `-c`.

mod attributes;
mod check;
mod expected;
mod hash;
mod large;
mod line;
mod make;
mod run;
mod text;

pub use attributes::TreeAttributes;
pub use check::{CheckOptions, check};
pub use line::{Malformed, Stated, write_line};
pub use make::{NewManifest, make, make_of};
pub use text::Manifest;

pub use crate::hashing::Digest;

//! Moves bytes on Linux by the way that is fastest on the machine it runs on.
//!
//! | to move | use |
//! |---|---|
//! | everything from one open file, pipe or socket to another | [`copy()`] |
//! | a file, by name | [`copy_file`] |
//! | a directory with all it holds | [`copy_tree`] |
//! | messages or large buffers to another process | [`channel`] |
//! | memory to memory, with a checksum on the way | [`memory`] |
//!
//! ```
//! use std::io::Read;
//!
//! # let folder = tempfile::tempdir()?;
//! # let (from, to) = (folder.path().join("from"), folder.path().join("to"));
//! std::fs::write(&from, "some bytes")?;
//! let report = thalweg::copy_file(&from, &to)?;
//! assert_eq!(report.bytes, 10);
//! # assert_eq!(std::fs::read(&to)?, b"some bytes");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **The way** is chosen by what `thalweg tune` measured on this machine, if its profile is there and
//! still holds ([`is_measured`]); otherwise by a fixed order, safest first. A way that the kernel
//! refuses midway is replaced by the next at the byte reached, and the report says so.
//!
//! **The promises** are the caller's to give up ([`Guarantees`]). By default the destination gets the
//! bytes as they were when they were moved, and shares no page with the source.
//!
//! The crates below this one (`thalweg-core`, `thalweg-channel`, `thalweg-tree`, `thalweg-kernels`)
//! have every detail; here is what most programs need of them.
#![forbid(unsafe_code)]

pub mod channel;
mod error;
pub mod memory;
mod names;
mod saved;
mod transfer;

pub use error::Error;
pub use names::{CopyTree, copy_file, copy_tree};
pub use saved::is_measured;
pub use thalweg_core::{Cancelled, Guarantees, Plan, Report, Side};
pub use thalweg_tree::fleet;
pub use thalweg_tree::{CopyOptions, Event, Events, Fsync, Hash, Progress, TreeReport};
pub use transfer::{copy, plan};

/// What the functions of this crate answer.
pub type Result<T> = std::result::Result<T, Error>;

/// The examples of README.md are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

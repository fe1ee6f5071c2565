//! Moves bytes on Linux with the mechanism that is fastest on the machine it runs on.
//!
//! | to move | use |
//! |---|---|
//! | everything from one open file, pipe or socket to another | [`copy()`] |
//! | a file, by name | [`copy_file`] |
//! | a directory with its contents | [`copy_tree`] |
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
//! **The mechanism** is chosen by the measurements of `thalweg tune` on this machine, if a valid profile exists
//! ([`is_measured`]). Otherwise a fixed order is used, safest first. If the kernel rejects a mechanism midway, the next one
//! continues at the byte reached, and the report contains that.
//!
//! **The guarantees** can be relaxed by the caller ([`Guarantees`]). By default the destination receives the bytes as they were
//! at the time of the transfer, and shares no page with the source.
//!
//! The underlying crates (`thalweg-core`, `thalweg-channel`, `thalweg-tree`, `thalweg-kernels`) provide full control. This crate
//! contains what most programs need.
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

/// Result of the functions of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Compiles the examples of README.md as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ThalwegReadme;

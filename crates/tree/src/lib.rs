//! Copies files and trees: walk, publish, attributes, sparse, resume, verify.
//!
//! [`copy`] does what `cp` does with the same options, with three promises on top: nothing that is
//! not whole ever has its final name (unless [`CopyOptions::inplace`]), what was interrupted can be
//! gone on with, and the [`TreeReport`] says which mechanism moved how much. It prints nothing; who
//! wants to know more implements [`Events`].
//!
//! Differences from GNU `cp`, all for the first promise: a file that is replaced becomes another
//! inode (other hard links to the old one keep the old contents) with the mode, owner and extended
//! attributes of the old one, unless its directory takes no new file: then it is written into, as
//! `cp` does; a new directory is built as `.NAME.thalweg-part` and renamed at the end; names of that
//! form are not copied. A run that is stopped leaves such a directory for one that resumes it.
//!
//! A source that changes while it is read is copied and published all the same, as `tar` does, and
//! counted in [`TreeReport::changed`]: the copy may hold some of the old and some of the new.
//!
//! ```
//! use thalweg_tree::{CopyOptions, Hash, Target, copy};
//!
//! # let folder = tempfile::tempdir()?;
//! # let (from, to) = (folder.path().join("from"), folder.path().join("to"));
//! # std::fs::create_dir(&from)?;
//! # std::fs::write(from.join("file"), "some bytes")?;
//! let options = CopyOptions { verify: Some(Hash::Xxh3), target: Target::Exact, ..CopyOptions::archive() };
//! let report = copy(&[from], &to, &options, &())?;
//! assert_eq!((report.files, report.error_count), (1, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod acl;
pub mod compare;
mod copy;
mod count;
mod error;
mod event;
mod evidence;
mod exclude;
pub mod fleet;
mod folder;
pub mod foreign;
pub mod hashing;
mod identity;
pub mod journal;
mod left_out;
mod listed;
mod listing;
pub mod manifest;
mod names;
mod options;
mod paths;
mod pieces;
mod queue;
mod ranges;
mod read;
mod sources;
mod threads;
mod times;
mod walk;
mod xattrs;

pub use copy::report::{Ending, MOST_ERRORS, MOST_STEPS, MechanismShare, TreeReport, Verified};
pub use copy::start::copy;
pub use count::count;
pub use error::{Error, Refusal};
pub use event::{Event, Events, Halt, Progress, Skip, Total};
pub use exclude::ExcludePatterns;
pub use journal::Journal;
pub use listed::Listed;
pub use options::{
    Backup, Becomes, CopyOptions, Dereference, Filter, Hash, Preserve, Target, Update, When,
};
pub use ranges::{NotRanges, Ranges};
pub use read::drop_cached;
pub use thalweg_core::atomic_file::Fsync;
pub use threads::on_threads;

/// The examples of README.md are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

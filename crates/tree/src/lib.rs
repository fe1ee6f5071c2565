//! Copies, moves, syncs and compares files and directory trees.
//!
//! [`copy`] behaves like `cp` with equal options, with three additional guarantees. A file or directory gets its
//! final name only when it is complete (unless [`CopyOptions::inplace`]). An interrupted copy can be resumed. The
//! [`TreeReport`] contains the number of bytes that each mechanism moved. The library prints nothing; to observe a
//! copy, implement [`Events`].
//!
//! There are three differences from GNU `cp`, all for the first guarantee:
//!
//! - A replaced file gets a new inode, with the mode, owner and extended attributes of the old one. Other hard links
//!   to the old inode keep the old contents. If the directory accepts no new file, the file is written in place, as
//!   `cp` does.
//! - A new directory is filled under the name `.NAME.thalweg-part` and renamed at the end. A copy that is stopped
//!   leaves such a directory, and a later run can resume it.
//! - Entries with names of that form are not copied.
//!
//! A source that changes while it is read is still copied and published, as `tar` does. It is counted in
//! [`TreeReport::changed`], because the copy may contain a mix of old and new data.
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
mod change;
pub mod compare;
mod copy;
mod count;
mod error;
mod event;
mod evidence;
mod exclude;
pub mod fleet;
mod fs;
mod given;
pub mod hashing;
mod holder;
mod identity;
pub mod install;
pub mod journal;
mod kept;
mod listed;

pub mod manifest;
mod names;
mod options;
mod paths;
mod pieces;
mod queue;
mod ranges;
mod read;
mod sources;
pub mod sync;
mod threads;
mod times;
mod twins;

mod xattrs;

pub use change::{AttributeDifferences, ChangeAction, SyncChange, SyncCounts};
pub use copy::report::{
    DirectoryCensus, Ending, MOST_ERRORS, MOST_STEPS, MechanismShare, TreeReport, Verified,
};
pub use copy::start::copy;
pub use count::count;
pub use error::{Error, Refusal};
pub use event::{Event, Events, Halt, Progress, Skip, Total};
pub use exclude::ExcludePatterns;
pub use given::{FileLimits, GivenAttributes, ModeChange};
pub use journal::Journal;
pub use kept::KeptEntries;
pub use listed::ListedFiles;
pub use options::{
    Backup, Becomes, CopyOptions, Dereference, Filter, Hash, OverDirectory, Preserve, SyncRules,
    Target, Update, When,
};
pub use ranges::{NotRanges, Ranges};
pub use read::drop_cached;
pub use thalweg_core::atomic_file::Fsync;
pub use threads::on_threads;
pub use twins::{TwinFile, Twins};

/// Runs the examples of README.md as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

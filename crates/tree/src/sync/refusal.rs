//! The reasons why a sync deletes nothing.

use std::path::PathBuf;
use thalweg_core::failed::quoted;

/// The reason why nothing was deleted. Each one can be overridden by
/// [`DeleteOptions::force`](super::DeleteOptions::force).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeleteRefusal {
    /// The source has no entries. It may be the mount point of a file system that is not mounted.
    #[error("the source is empty")]
    EmptySource,
    /// Entries could not be copied.
    #[error("{0} entries could not be copied")]
    Failures(u64),
    /// A directory of the source could not be listed.
    #[error("the source could not be listed completely ({0})")]
    Unlisted(String),
    /// A directory of the source vanished, or its file system was unmounted, while the sync ran.
    #[error("directories of the source vanished during the run")]
    Vanished,
    /// The state file in the destination records another file system than that of the source.
    #[error("the source is on another file system than at the last sync with --delete")]
    OtherDevice,
    /// The source is inside the destination.
    #[error("the destination contains the source, at {}", quoted(.0))]
    ContainsSource(PathBuf),
    /// Too many entries would be deleted.
    #[error("{doomed} of {entries} entries would be deleted (limit: {most})")]
    TooMany {
        /// Entries that the source does not have.
        doomed: u64,
        /// Entries of the destination before the sync.
        entries: u64,
        /// The largest number that may be deleted.
        most: u64,
    },
}

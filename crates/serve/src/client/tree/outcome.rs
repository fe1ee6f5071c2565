//! The outcome of a tree fetch.

use thalweg_core::Report;
use thalweg_tree::sync::DeleteReport;

use crate::client::FetchError;

/// An entry that could not be fetched.
#[derive(Debug)]
pub struct Missed {
    /// Path below the fetched directory.
    pub path: Vec<u8>,
    pub error: FetchError,
}

/// The outcome of a tree fetch.
#[derive(Debug, Default)]
pub struct TreeFetched {
    /// Files that were fetched.
    pub files: u64,
    /// Symbolic links that were created.
    pub links: u64,
    /// FIFOs, sockets and devices that were created.
    pub specials: u64,
    /// Files that were already present as listed.
    pub unchanged: u64,
    /// Bytes of the fetched files that an earlier run had moved.
    pub resumed: u64,
    /// Entries that failed: the first [`MOST_REPORTED`](super::MOST_REPORTED), and their number.
    pub missed: Vec<Missed>,
    pub missed_count: u64,
    /// Failed entries that a later run of the same command may fetch: the server has another version than listed,
    /// cannot read the file at the moment, or has no permission to read it.
    pub later: u64,
    /// Entries that the server did not list, and entries with reserved names.
    pub left_out: u64,
    /// Entries that the filters exclude, and files beyond the limits.
    pub excluded: u64,
    /// Extended attributes that the file system of the destination refused.
    pub refused_xattrs: u64,
    /// The error that stopped the fetch early. `None`: every entry that did not fail is present.
    pub halted: Option<FetchError>,
    /// Entries that were created.
    pub created: u64,
    /// Created files that are hard links to files of an earlier snapshot.
    pub referenced: u64,
    /// Existing entries that were changed, including changes of attributes only.
    pub changed: u64,
    /// Report of the deletion, if it was requested and began.
    pub deletion: Option<DeleteReport>,
    /// Name of the staging directory that the same call can resume; `None`: the tree is published, or nothing was
    /// kept.
    pub kept: Option<std::ffi::CString>,
    pub report: Report,
}

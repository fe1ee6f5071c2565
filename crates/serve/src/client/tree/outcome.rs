//! What became of a tree.

use thalweg_core::Report;

use crate::client::Error;

/// An entry that is not there.
#[derive(Debug)]
pub struct Missed {
    /// Below the folder.
    pub path: Vec<u8>,
    pub error: Error,
}

/// What became of a tree.
#[derive(Debug, Default)]
pub struct TreeFetched {
    /// Files that came.
    pub files: u64,
    /// Links that were made.
    pub links: u64,
    /// Files that were there already as the list says.
    pub unchanged: u64,
    /// Bytes that an earlier run had moved of files that came.
    pub resumed: u64,
    /// Entries that are not there: the first [`MOST_TOLD`](super::MOST_TOLD), and how many.
    pub missed: Vec<Missed>,
    pub missed_count: u64,
    /// Of these, those that the same call may bring: other files by now than the list says, or such that the server
    /// cannot or may not read.
    pub later: u64,
    /// Entries that the server did not list.
    pub left_out: u64,
    /// Why not all was tried. Otherwise all that is not missed is there.
    pub halted: Option<Error>,
    /// What came waits under this name for the same call to go on; `None`: it is where it belongs.
    pub kept: Option<std::ffi::CString>,
    pub report: Report,
}

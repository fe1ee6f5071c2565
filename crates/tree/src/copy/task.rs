//! The tasks of the workers of a copy.

use std::{ffi::CString, sync::Arc};

use crate::{
    copy::{copy_entry::SourceDirectory, directory::Directory},
    queue::PackedNames,
};

/// A piece of work. Until it is done, it counts in `pending` of its directory.
#[derive(Debug)]
pub(crate) enum CopyTask {
    /// A source that the caller named.
    Named { directory: Arc<Directory>, from: SourceDirectory, source: CString, name: CString },
    /// A directory to enter, below `directory`.
    Enter { directory: Arc<Directory>, from: SourceDirectory, name: CString },
    /// Entries of one directory, for an idle worker to copy.
    Batch { directory: Arc<Directory>, from: SourceDirectory, names: PackedNames },
}

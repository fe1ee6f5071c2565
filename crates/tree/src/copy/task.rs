//! The tasks of the workers of a copy.

use std::{ffi::CString, sync::Arc};

use crate::{
    copy::{copy_entry::Origin, directory::Directory},
    queue::Names,
};

/// A piece of work. Each holds one count of its directory's `pending`.
#[derive(Debug)]
pub(crate) enum Task {
    /// A source that the caller named.
    Named { directory: Arc<Directory>, from: Origin, source: CString, name: CString },
    /// A directory to enter, below `directory`.
    Enter { directory: Arc<Directory>, from: Origin, name: CString },
    /// Entries of one directory, for an idle worker to copy.
    Batch { directory: Arc<Directory>, from: Origin, names: Names },
}

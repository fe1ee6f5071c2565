//! The work that is stored for the workers of a copy.

use rustix::fs::Stat;
use std::{ffi::CString, sync::Arc};
use thalweg_core::atomic_file::Parked;

use crate::{
    copy::{
        copy_entry::{QueuedEntry, SourceDirectory},
        dest::existing::Existing,
        directory::Directory,
        durable::FileSync,
    },
    queue::PackedNames,
};

/// A piece of work. Until it is done, it counts in `pending` of its directory.
#[derive(Debug)]
pub(crate) enum CopyTask {
    /// A source that the caller named, or a name that waited for the copy of another name.
    Named(QueuedEntry),
    /// A directory to enter, below `directory`.
    Enter { directory: Arc<Directory>, from: SourceDirectory, name: CString },
    /// Entries of one directory, for an idle worker to copy.
    Batch { directory: Arc<Directory>, from: SourceDirectory, names: PackedNames },
}

/// A small file that is complete and waits for a sync before it gets its name.
pub(crate) struct WaitingFile {
    pub entry: QueuedEntry,
    pub stat: Stat,
    pub there: Option<Existing>,
    pub file: Parked,
    pub sync: FileSync,
}

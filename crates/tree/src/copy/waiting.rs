//! Small files that are complete and get their names after the next sync.

use rustix::fs::Stat;
use std::{ffi::CString, sync::Arc};
use thalweg_core::atomic_file::Parked;

use crate::copy::{
    copy_entry::SourceDirectory, dest::existing::Existing, directory::Directory, durable::FileSync,
};

/// A complete file that waits for a sync before it gets its name.
pub(crate) struct WaitingFile {
    /// The destination directory, in which the file counts as pending work until it has its name.
    pub directory: Arc<Directory>,
    pub from: SourceDirectory,
    pub source: CString,
    pub name: CString,
    pub stat: Stat,
    pub there: Option<Existing>,
    pub file: Parked,
    pub sync: FileSync,
}

/// A file that could not get its name after a common sync, and that is copied again.
pub(crate) struct Repeat {
    /// The destination directory, in which the file counts as pending work until it is copied.
    pub directory: Arc<Directory>,
    pub from: SourceDirectory,
    pub source: CString,
    pub name: CString,
}

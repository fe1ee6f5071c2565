//! A small file that is whole and gets its name after the next sync.

use rustix::fs::Stat;
use std::{ffi::CString, sync::Arc};
use thalweg_core::atomic_file::Parked;

use crate::copy::{
    copy_entry::Origin, dest::conflict::Existing, directory::Directory, durable::FileSync,
};

/// A file that is whole and waits for its name.
pub(crate) struct Waiting {
    /// It is complete only when the file has its name.
    pub directory: Arc<Directory>,
    pub from: Origin,
    pub source: CString,
    pub name: CString,
    pub stat: Stat,
    pub there: Option<Existing>,
    pub file: Parked,
    pub sync: FileSync,
}

/// A file that could not be named after a sync, and is copied once more, by itself.
pub(crate) struct Repeat {
    /// It is complete only when the file is copied.
    pub directory: Arc<Directory>,
    pub from: Origin,
    pub source: CString,
    pub name: CString,
}

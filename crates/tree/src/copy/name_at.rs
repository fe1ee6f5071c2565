//! A name in an open directory.

use rustix::fs::Stat;
use std::{ffi::CStr, os::fd::BorrowedFd, path::PathBuf};
use thalweg_core::atomic_file::unlink;
use thalweg_sys::Errno;

use crate::{
    KeptEntries,
    error::{Attempt, CopyFailure, at_sink},
};

/// A destination: an open directory and a name in it.
#[derive(Clone, Copy)]
pub(crate) struct NameAt<'a> {
    /// The directory.
    pub dir: BorrowedFd<'a>,
    /// The name of the file in the directory.
    pub name: &'a CStr,
}

/// The open directory that a copy goes to, and the attributes of its source.
#[derive(Clone, Copy)]
pub(crate) struct CopyPlacement<'a> {
    /// The directory.
    pub dir: BorrowedFd<'a>,
    /// The attributes of the source.
    pub stat: &'a Stat,
}

/// Removes an entry that a directory replaces, or moves it to the directory that keeps such entries.
pub(crate) fn remove_replaced(
    kept: Option<&KeptEntries>,
    name_at: NameAt<'_>,
    below: impl FnOnce() -> PathBuf,
) -> Attempt<()> {
    let removed = match kept {
        Some(kept) => kept.take(name_at.dir, name_at.name, &below()),
        None => unlink(name_at.dir, name_at.name).map_err(at_sink("unlinkat")),
    };
    match removed {
        Err(CopyFailure::Sink(_, Errno::NOENT | Errno::ISDIR, _)) => Ok(()),
        answer => answer,
    }
}

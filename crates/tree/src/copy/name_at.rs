//! A name in an open directory.

use rustix::fs::Stat;
use std::{ffi::CStr, os::fd::BorrowedFd, path::PathBuf};
use thalweg_core::atomic_file::unlink;
use thalweg_sys::Errno;

use crate::{
    KeptEntries,
    error::{Attempt, CopyFailure, at_sink},
};

/// A destination: a name in an open directory.
#[derive(Clone, Copy)]
pub(crate) struct NameAt<'a> {
    pub dir: BorrowedFd<'a>,
    pub name: &'a CStr,
}

/// The open destination directory of a copy, and the attributes of its source.
#[derive(Clone, Copy)]
pub(crate) struct CopyPlacement<'a> {
    pub dir: BorrowedFd<'a>,
    pub stat: &'a Stat,
}

/// Removes an entry that a directory replaces. If replaced entries are kept, moves it to their directory instead.
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

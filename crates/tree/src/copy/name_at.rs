//! A name in an open directory.

use rustix::fs::Stat;
use std::{ffi::CStr, os::fd::BorrowedFd};
use thalweg_sys::Errno;

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

/// Returns `true` if hard links are unsupported by the file system, blocked by a system call filter, or exhausted
/// (`EMLINK`).
pub(crate) fn has_no_links(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::MLINK | Errno::XDEV
    )
}

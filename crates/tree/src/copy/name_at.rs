//! A name in an open directory.

use std::{ffi::CStr, os::fd::BorrowedFd};
use thalweg_sys::Errno;

/// Where a file goes.
#[derive(Clone, Copy)]
pub(crate) struct NameAt<'a> {
    /// Its directory.
    pub dir: BorrowedFd<'a>,
    /// The name it gets.
    pub name: &'a CStr,
}

/// Whether a file system, or a filter of system calls, has no hard links, or no more of them.
pub(crate) fn has_no_links(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::MLINK | Errno::XDEV
    )
}

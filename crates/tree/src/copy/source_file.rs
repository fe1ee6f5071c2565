//! A source file that is open.

use rustix::fs::Stat;
use std::os::fd::OwnedFd;

/// An open source file, and its attributes as they were when it was opened.
#[derive(Clone, Copy)]
pub(crate) struct SourceFile<'a> {
    pub fd: &'a OwnedFd,
    pub stat: &'a Stat,
}

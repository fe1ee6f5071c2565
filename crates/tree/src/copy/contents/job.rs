//! One file to transfer.

use rustix::fs::Stat;
use std::os::fd::OwnedFd;

pub(crate) struct ContentsJob<'a> {
    pub source: &'a OwnedFd,
    pub stat: &'a Stat,
    pub sink: &'a OwnedFd,
    /// `true` if the sink contains bytes that an earlier run moved.
    pub adopted: bool,
    /// `true` if unwritten ranges of the sink read as zeros and `ftruncate` can set its length. This is so for a
    /// regular file that was empty.
    pub takes_holes: bool,
}

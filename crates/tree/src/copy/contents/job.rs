//! One file to move.

use rustix::fs::Stat;
use std::os::fd::OwnedFd;

pub(crate) struct Job<'a> {
    pub source: &'a OwnedFd,
    pub stat: &'a Stat,
    pub sink: &'a OwnedFd,
    /// The sink holds what an earlier run had moved.
    pub adopted: bool,
    /// Where nothing is written it reads as zeros, and it gets the length that it is given: a regular file
    /// that was empty.
    pub takes_holes: bool,
}

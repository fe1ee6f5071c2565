//! A file that is open on both sides.

use rustix::fs::Stat;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use thalweg_sys::Errno;

use super::run::SideFailure;
use crate::{fs::walk::VisitedEntry, identity::size, read::open};

pub(crate) struct FilePair {
    pub fds: [OwnedFd; 2],
    pub stats: [Stat; 2],
    /// Number of bytes to compare.
    pub len: u64,
}

impl FilePair {
    pub fn open(at: &VisitedEntry<'_>) -> Result<Self, SideFailure> {
        let open = |side: usize| {
            let dir = at.dir(side).ok_or((side, "openat", Errno::NOENT))?;
            let fd = open(dir, at.name(side), at.is_named_by_caller());
            let fd = fd.map_err(|errno| (side, "openat", errno))?;
            let stat = rustix::fs::fstat(&fd).map_err(|errno| (side, "fstat", errno))?;
            Ok((fd, stat))
        };
        let [(source, of_source), (sink, of_sink)] = [open(0)?, open(1)?];
        let stats = [of_source, of_sink];
        // `fstat` reports size 0 for a block device, so the larger size counts.
        let len = size(&stats[0]).max(size(&stats[1]));
        Ok(Self { fds: [source, sink], stats, len })
    }

    pub fn ends(&self) -> [BorrowedFd<'_>; 2] {
        self.fds.each_ref().map(AsFd::as_fd)
    }
}

//! Directories as they are opened, listed and climbed.

use rustix::fs::{Mode, OFlags, fstat, openat};
use std::{
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};
use thalweg_sys::Errno;

use crate::identity::Id;

/// How to open a directory to work in.
pub(crate) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Room for one call of getdents.
pub(crate) fn listing_buffer() -> Vec<MaybeUninit<u8>> {
    vec![MaybeUninit::uninit(); 32 << 10]
}

/// A directory and every one above it.
pub(crate) fn ancestors(dir: BorrowedFd<'_>) -> Result<Vec<Id>, Errno> {
    let mut ids = vec![Id::of(&fstat(dir)?)];
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut above = openat(dir, c"..", flags, Mode::empty())?;
    loop {
        let id = Id::of(&fstat(&above)?);
        if ids.last() == Some(&id) {
            return Ok(ids);
        }
        ids.push(id);
        above = openat(&above, c"..", flags, Mode::empty())?;
    }
}

/// A directory to work in that stays open as long as this is held.
#[derive(Clone, Debug)]
pub(crate) enum Opened {
    /// The current one: names are paths as the caller gave them.
    Caller,
    /// This directory.
    Listed(Arc<OwnedFd>),
}

impl AsFd for Opened {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Caller => rustix::fs::CWD,
            Self::Listed(fd) => fd.as_fd(),
        }
    }
}

//! Directories as they are opened, listed and climbed.

use rustix::fs::{Mode, OFlags, RawDir, RawDirEntry, fstat, openat};
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

/// Visits each entry of an open directory but `.` and `..`, until a visit returns `false`. A signal (EINTR) does not end the
/// listing, as network file systems answer it in the middle.
pub(crate) fn each_entry(
    directory: impl AsFd,
    buffer: &mut [MaybeUninit<u8>],
    mut visit: impl FnMut(&RawDirEntry<'_>) -> bool,
) -> Result<(), Errno> {
    let mut entries = RawDir::new(directory, buffer);
    while let Some(entry) = entries.next() {
        match entry {
            Ok(entry) if [c".", c".."].contains(&entry.file_name()) => {}
            Ok(entry) if !visit(&entry) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
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

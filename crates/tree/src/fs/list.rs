//! Opens and lists directories, and finds their ancestors.

use rustix::fs::{Mode, OFlags, RawDir, RawDirEntry, fstat, openat};
use std::{
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};
use thalweg_sys::Errno;

use crate::identity::Id;

/// Flags to open a directory for work in it.
pub(crate) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Returns a buffer for one call of `getdents64`.
pub fn listing_buffer() -> Vec<MaybeUninit<u8>> {
    vec![MaybeUninit::uninit(); 32 << 10]
}

/// Calls `visit` for each entry of an open directory except `.` and `..`, until it returns `false`. Continues after
/// EINTR, which network file systems return in the middle of a directory.
pub fn each_entry(
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

/// Returns the identities of a directory and all its ancestors.
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

/// A directory to work in. It stays open while this value exists.
#[derive(Clone, Debug)]
pub(crate) enum DirectoryHandle {
    /// The current directory: names are paths as the caller gave them.
    Caller,
    /// This directory.
    Listed(Arc<OwnedFd>),
}

impl AsFd for DirectoryHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Caller => rustix::fs::CWD,
            Self::Listed(fd) => fd.as_fd(),
        }
    }
}

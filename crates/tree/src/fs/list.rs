//! Opens and lists directories, and finds their ancestors.

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, RawDir, RawDirEntry, Stat, fstat, openat, statat},
    path::Arg,
};
use std::{
    ffi::CStr,
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};
use thalweg_sys::Errno;

use crate::identity::{Id, kind};

/// Flags to open a directory for work in it.
pub(crate) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Flags to open a directory that the caller named, which may be a symbolic link.
pub(crate) const NAMED_DIRECTORY: OFlags = DIRECTORY.difference(OFlags::NOFOLLOW);

/// Returns the flags to open a directory. `follows`: `true` if a symbolic link is followed.
pub(crate) fn directory_flags(follows: bool) -> OFlags {
    if follows { NAMED_DIRECTORY } else { DIRECTORY }
}

/// Returns the attributes of an entry. `follows`: `true` if a symbolic link is followed.
pub(crate) fn stat_at(dir: impl AsFd, name: impl Arg, follows: bool) -> Result<Stat, Errno> {
    let flags = if follows { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    statat(dir, name, flags)
}

/// Returns the type of a listed entry. Calls `statat` only if the listing does not contain the type, or if a symbolic
/// link is followed.
pub(crate) fn type_of(
    dir: impl AsFd,
    name: &CStr,
    listed: FileType,
    follows: bool,
) -> Result<FileType, Errno> {
    if listed == FileType::Unknown || follows && listed == FileType::Symlink {
        return stat_at(dir, name, follows).map(|stat| kind(&stat));
    }
    Ok(listed)
}

/// Returns `true` if a listed entry is a directory; see [`type_of`].
pub(crate) fn is_directory(dir: impl AsFd, name: &CStr, listed: FileType, follows: bool) -> bool {
    type_of(dir, name, listed, follows).is_ok_and(|kind| kind == FileType::Directory)
}

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

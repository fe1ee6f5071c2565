//! Removes the contents of directories that no other user can enter. Their entries therefore need no check.

use rustix::fs::{AtFlags, Mode, fchmod, fstat, openat, unlinkat};
use std::{
    ffi::{CStr, CString},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};
use thalweg_sys::Errno;

use super::{
    beneath::open_by_force,
    cached::{CachedDirectory, DirectoryCache, ReopenAddress},
    list::{DIRECTORY, each_entry, listing_buffer},
};
use crate::{
    error::{Attempt, CopyFailure, at_sink},
    identity::Id,
};

/// Number of directories that stay open while a tree is removed, which may be deeper than the descriptor limit.
const KEPT: usize = 4;

/// Empties an open directory of any depth.
pub(crate) fn remove_contents(top: &OwnedFd) -> Attempt<()> {
    let top = top.try_clone().map_err(|_| CopyFailure::Sink("fcntl", Errno::MFILE, 0))?;
    let kept = DirectoryCache::new(KEPT);
    let folder = |fd: OwnedFd, name: &CStr, above: Option<&Arc<CachedDirectory>>| -> Attempt<_> {
        let id = Id::of(&fstat(&fd).map_err(at_sink("fstat"))?);
        let address = ReopenAddress { above, name, flags: DIRECTORY };
        // The top directory cannot be opened again, because its name is not known here.
        Ok(CachedDirectory::new(fd, id, &address, above.map(|_| &kept)))
    };
    // The directories from the top to the current one, each with its name in its parent.
    let mut path = vec![(folder(top, c"", None)?, CString::default())];
    let mut buffer = listing_buffer();
    while let Some((here, _)) = path.last() {
        let fd = here.open().map_err(at_sink("openat"))?;
        if let Some((below, name)) = empty_but_for_one(fd.as_fd(), &mut buffer)? {
            path.push((folder(below, &name, Some(here))?, name));
            continue;
        }
        drop(fd);
        let Some((done, name)) = path.pop() else { break };
        drop(done);
        if let Some((above, _)) = path.last() {
            let above = above.open().map_err(at_sink("openat"))?;
            unlinkat(&*above, &*name, AtFlags::REMOVEDIR).map_err(at_sink("unlinkat"))?;
        }
    }
    Ok(())
}

/// Removes entries until it meets a directory that is not empty, and opens that directory.
fn empty_but_for_one(
    dir: BorrowedFd<'_>,
    buffer: &mut [MaybeUninit<u8>],
) -> Attempt<Option<(OwnedFd, CString)>> {
    let fresh = openat(dir, c".", DIRECTORY, Mode::empty()).map_err(at_sink("openat"))?;
    let mut found = Ok(None);
    let listed = each_entry(fresh, buffer, |entry| {
        found = remove_entry(dir, entry.file_name());
        matches!(found, Ok(None))
    });
    let found = found?;
    listed.map(|()| found).map_err(at_sink("getdents64"))
}

/// Removes an entry, or opens it if it is a directory that is not empty.
fn remove_entry(dir: BorrowedFd<'_>, name: &CStr) -> Attempt<Option<(OwnedFd, CString)>> {
    match unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(None),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(CopyFailure::Sink("unlinkat", errno, 0)),
    }
    match unlinkat(dir, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(None),
        Err(Errno::NOTEMPTY | Errno::EXIST) => {
            let below = open_for_removal(dir, name).map_err(at_sink("openat"))?;
            Ok(Some((below, name.to_owned())))
        }
        Err(errno) => Err(CopyFailure::Sink("unlinkat", errno, 0)),
    }
}

fn open_for_removal(dir: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    // The directory may already have its final mode, which may deny access.
    let fd = open_by_force(dir, name)?;
    let _ = fchmod(&fd, Mode::RWXU);
    Ok(fd)
}

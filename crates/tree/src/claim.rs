//! Whose an unfinished file or directory is: that of whoever holds its lock while it has its name.

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, fstat, openat, statat};
use std::{
    ffi::CStr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};
use thalweg_sys::Errno;

use crate::{
    error::{Attempt, Failure, at_sink},
    identity::Id,
    publish::Spot,
};

/// Locks a file just made. False if somebody took it for a leftover before the lock was ours:
/// then he holds the lock, or has removed the name already.
pub(crate) fn is_ours(fd: &OwnedFd) -> Result<bool, Errno> {
    match flock(fd, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(fstat(fd)?.st_nlink > 0),
        Err(Errno::WOULDBLOCK) => Ok(false),
        // File systems without locks: then there is no protection, as for every other program.
        Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => Ok(true),
        Err(errno) => Err(errno),
    }
}

/// What an unfinished file that lies in the way is.
pub(crate) enum Leftover {
    /// It vanished meanwhile.
    Gone,
    /// A living process works on it.
    Alive,
    /// Nobody's; it is locked now.
    Free(OwnedFd),
}

/// What an unfinished file of this name is.
pub(crate) fn leftover(spot: Spot<'_>, name: &CStr) -> Attempt<Leftover> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match claim(spot.dir, name, flags)? {
        // Another name of somebody's file: to write into it would be to write into theirs.
        Leftover::Free(fd) if fstat(&fd).map_err(at_sink("fstat"))?.st_nlink > 1 => {
            Ok(Leftover::Alive)
        }
        found => Ok(found),
    }
}

/// Opens and locks a leftover of this name, unless somebody else has it.
pub(crate) fn claim(dir: BorrowedFd<'_>, name: &CStr, flags: OFlags) -> Attempt<Leftover> {
    let fd = match openat(dir, name, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(Leftover::Gone),
        // Not a file we made, or not ours to touch: leave it.
        Err(Errno::LOOP | Errno::ISDIR | Errno::NOTDIR | Errno::NXIO | Errno::ACCESS) => {
            return Ok(Leftover::Alive);
        }
        Err(errno) => return Err(Failure::Sink("openat", errno, 0)),
    };
    if !is_ours(&fd).map_err(at_sink("flock"))? {
        return Ok(Leftover::Alive);
    }
    let opened = fstat(fd.as_fd()).map_err(at_sink("fstat"))?;
    match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(named) if Id::of(&named) == Id::of(&opened) => Ok(Leftover::Free(fd)),
        Ok(_) | Err(Errno::NOENT) => Ok(Leftover::Gone),
        Err(errno) => Err(Failure::Sink("newfstatat", errno, 0)),
    }
}

//! Whose an unfinished file or directory is: that of the process that holds its lock while it has its
//! name.

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, Stat, flock, fstat, openat, statat};
use std::{
    ffi::CStr,
    os::fd::{BorrowedFd, OwnedFd},
};
use thalweg_sys::Errno;

use super::{CallFailed, failed};

/// A file, whatever its names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Id {
    pub dev: u64,
    pub ino: u64,
}

impl Id {
    pub fn of(stat: &Stat) -> Self {
        Self { dev: stat.st_dev, ino: stat.st_ino }
    }
}

/// Locks what was just made under a name. False if another process took it for a leftover before
/// the lock was ours: then that one holds the lock, has given it its final name, or has removed it.
pub fn is_ours(fd: &OwnedFd, dir: BorrowedFd<'_>, name: &CStr) -> Result<bool, CallFailed> {
    Ok(lock(fd) != Lock::Theirs && is_named(fd, dir, name)?)
}

/// Whether the name still leads to the open file.
pub fn is_named(fd: &OwnedFd, dir: BorrowedFd<'_>, name: &CStr) -> Result<bool, CallFailed> {
    let opened = fstat(fd).map_err(failed("fstat"))?;
    match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(named) => Ok(Id::of(&named) == Id::of(&opened)),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(CallFailed { call: "newfstatat", errno }),
    }
}

#[derive(PartialEq, Eq)]
enum Lock {
    Ours,
    Theirs,
    /// There are none here.
    Unknown,
}

fn lock(fd: &OwnedFd) -> Lock {
    loop {
        return match flock(fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Lock::Ours,
            Err(Errno::WOULDBLOCK) => Lock::Theirs,
            Err(Errno::INTR) => continue,
            // ENOLCK and EIO of servers, ENOSYS and EPERM of filters: what is left is not touched then.
            Err(_) => Lock::Unknown,
        };
    }
}

/// What an unfinished file that lies in the way is.
pub enum Leftover {
    /// It vanished meanwhile.
    Gone,
    /// A living process works on it.
    Alive,
    /// Its process is dead; it is locked now.
    Free(OwnedFd),
}

/// What an unfinished file of this name is.
pub fn leftover(dir: BorrowedFd<'_>, name: &CStr) -> Result<Leftover, CallFailed> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match claim(dir, name, flags)? {
        // It has another name too: to write into it would be to write into that file.
        Leftover::Free(fd) if fstat(&fd).map_err(failed("fstat"))?.st_nlink > 1 => {
            Ok(Leftover::Alive)
        }
        found => Ok(found),
    }
}

/// Opens and locks a leftover of this name, unless a living process has it.
pub fn claim(dir: BorrowedFd<'_>, name: &CStr, flags: OFlags) -> Result<Leftover, CallFailed> {
    let fd = match openat(dir, name, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(Leftover::Gone),
        // Not a file we made, or not ours to touch: leave it.
        Err(Errno::LOOP | Errno::ISDIR | Errno::NOTDIR | Errno::NXIO | Errno::ACCESS) => {
            return Ok(Leftover::Alive);
        }
        Err(errno) => return Err(CallFailed { call: "openat", errno }),
    };
    match lock(&fd) {
        Lock::Ours if is_named(&fd, dir, name)? => Ok(Leftover::Free(fd)),
        Lock::Ours => Ok(Leftover::Gone),
        // Without locks the living cannot be told from the dead.
        Lock::Theirs | Lock::Unknown => Ok(Leftover::Alive),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::fd::AsFd};

    #[test]
    fn a_leftover_without_its_name_is_gone_and_one_with_it_is_free() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("part"), "x").unwrap();
        let dir = fs::File::open(place.path()).unwrap();
        let found = claim(dir.as_fd(), c"part", OFlags::RDWR).unwrap();
        let Leftover::Free(fd) = found else { panic!("nobody has it") };
        assert!(matches!(claim(dir.as_fd(), c"part", OFlags::RDWR).unwrap(), Leftover::Alive));
        fs::rename(place.path().join("part"), place.path().join("whole")).unwrap();
        assert!(!is_named(&fd, dir.as_fd(), c"part").unwrap());
        assert!(matches!(claim(dir.as_fd(), c"part", OFlags::RDWR).unwrap(), Leftover::Gone));
    }
}

//! Whose an unfinished file or directory is: that of the process that holds its lock while it has its
//! name.

use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, Stat, flock, fstat, openat, statat,
};
use std::{
    ffi::CStr,
    os::fd::{BorrowedFd, OwnedFd},
};
use thalweg_sys::Errno;

use super::{
    CallFailed, failed,
    ownership::{Distrust, distrust, distrust_name},
};

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

/// An unfinished file or directory that has the name a command wants to use.
pub enum Leftover {
    /// It vanished in the meantime.
    Gone,
    /// A living process works on it.
    Alive,
    /// Its process is dead; it is locked now.
    Free(OwnedFd),
    /// Another user may have made it, or may change it.
    Foreign(Distrust),
}

/// Opens and locks the partial file of this name, unless a living process has it.
pub fn leftover(dir: BorrowedFd<'_>, name: &CStr) -> Result<Leftover, CallFailed> {
    claim(dir, name, OFlags::RDWR)
}

/// Opens and locks a leftover of this name, unless a living process has it: a directory if `access` says so, a
/// regular file otherwise.
pub fn claim(dir: BorrowedFd<'_>, name: &CStr, access: OFlags) -> Result<Leftover, CallFailed> {
    let is_dir = access.contains(OFlags::DIRECTORY);
    let kind = if is_dir { FileType::Directory } else { FileType::RegularFile };
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = match openat(dir, name, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(Leftover::Gone),
        Err(Errno::LOOP | Errno::ISDIR | Errno::NOTDIR | Errno::NXIO | Errno::ACCESS) => {
            let why = distrust_name(dir, name, kind);
            return Ok(why.map_or(Leftover::Alive, Leftover::Foreign));
        }
        Err(errno) => return Err(CallFailed { call: "openat", errno }),
    };
    let check = || Ok(distrust(dir, &fstat(&fd).map_err(failed("fstat"))?, kind));
    // Before the lock, which another user may hold on a file of his own.
    if let Some(why) = check()? {
        return Ok(Leftover::Foreign(why));
    }
    match lock(&fd) {
        Lock::Ours if !is_named(&fd, dir, name)? => Ok(Leftover::Gone),
        Lock::Ours => match check()? {
            None => Ok(Leftover::Free(fd)),
            Some(why) => Ok(Leftover::Foreign(why)),
        },
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

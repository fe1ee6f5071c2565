//! Locks of unfinished files and directories. A process owns an entry if it holds the lock, and if the name under which
//! it opened the entry still leads to that entry.

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

/// Identity of a file, independent of its names.
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

/// Locks the file that was just created under a name. Returns `false` if another process took it for a leftover first.
/// That process then holds the lock, has given the file its final name, or has removed it.
pub fn is_ours(fd: &OwnedFd, dir: BorrowedFd<'_>, name: &CStr) -> Result<bool, CallFailed> {
    Ok(lock(fd) != Lock::Theirs && is_named(fd, dir, name)?)
}

/// Returns `true` if the name still leads to the open file.
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
    /// Locks are not supported here.
    Unknown,
}

fn lock(fd: &OwnedFd) -> Lock {
    loop {
        return match flock(fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Lock::Ours,
            Err(Errno::WOULDBLOCK) => Lock::Theirs,
            Err(Errno::INTR) => continue,
            // Network file systems return ENOLCK and EIO, seccomp filters ENOSYS and EPERM. Leftovers are then left
            // alone.
            Err(_) => Lock::Unknown,
        };
    }
}

/// State of an unfinished file or directory under the name that a command wants to use.
pub enum Leftover {
    /// The entry vanished before it was locked.
    Gone,
    /// A living process works on the entry.
    Alive,
    /// The process that created the entry is dead. This process has locked it.
    Free(OwnedFd),
    /// Another user may have created the entry, or can change it.
    Foreign(Distrust),
}

/// Opens and locks the partial file of this name, unless a living process holds it.
pub fn leftover(dir: BorrowedFd<'_>, name: &CStr) -> Result<Leftover, CallFailed> {
    claim(dir, name, OFlags::RDWR)
}

/// Opens and locks a leftover of this name, unless a living process holds it. The leftover must be a directory if
/// `access` contains `DIRECTORY`, and a regular file otherwise.
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
    // This check comes before the lock, because another user may hold the lock on their own file. That file would then
    // look like the file of a living run.
    if let Some(why) = check()? {
        return Ok(Leftover::Foreign(why));
    }
    match lock(&fd) {
        Lock::Ours if !is_named(&fd, dir, name)? => Ok(Leftover::Gone),
        Lock::Ours => match check()? {
            None => Ok(Leftover::Free(fd)),
            Some(why) => Ok(Leftover::Foreign(why)),
        },
        // Without locks, a living owner cannot be distinguished from a dead one.
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

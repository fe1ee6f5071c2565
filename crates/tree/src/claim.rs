//! Whose an unfinished file or directory is: that of whoever holds its lock while it has its name.

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, fstat, openat, statat};
use std::{
    ffi::CStr,
    os::fd::{BorrowedFd, OwnedFd},
};
use thalweg_sys::Errno;

use crate::{
    error::{Attempt, Failure, at_sink, at_source},
    identity::Id,
    publish::Spot,
    sources::ancestors,
};

/// Locks what was just made under a name. False if somebody took it for a leftover before the lock
/// was ours: then he holds the lock, or has given it its final name, or has removed it.
pub(crate) fn is_ours(fd: &OwnedFd, dir: BorrowedFd<'_>, name: &CStr) -> Attempt<bool> {
    Ok(lock(fd) != Lock::Theirs && is_named(fd, dir, name)?)
}

/// Whether the name still leads to the open file.
pub(crate) fn is_named(fd: &OwnedFd, dir: BorrowedFd<'_>, name: &CStr) -> Attempt<bool> {
    let opened = fstat(fd).map_err(at_sink("fstat"))?;
    match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(named) => Ok(Id::of(&named) == Id::of(&opened)),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(Failure::Sink("newfstatat", errno, 0)),
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
    match lock(&fd) {
        Lock::Ours if is_named(&fd, dir, name)? => Ok(Leftover::Free(fd)),
        Lock::Ours => Ok(Leftover::Gone),
        // Without locks nobody can tell the living from the dead.
        Lock::Theirs | Lock::Unknown => Ok(Leftover::Alive),
    }
}

/// Whether a leftover is the source that is copied, or a directory around it: somebody copies what
/// was left to its final name, and it must not be removed for that.
pub(crate) fn holds(leftover: &OwnedFd, source: BorrowedFd<'_>) -> Attempt<bool> {
    let leftover = Id::of(&fstat(leftover).map_err(at_sink("fstat"))?);
    let above = ancestors(source).map_err(at_source("openat"))?;
    Ok(above.contains(&leftover))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{publish::Sink, stage::Stage};
    use std::{fs, os::fd::AsFd};

    #[test]
    fn what_somebody_published_before_it_was_locked_is_not_ours() {
        let place = tempfile::tempdir().unwrap();
        let (name, part) = (c"n", c".n.thalweg-part");
        let path = place.path().join(".n.thalweg-part");
        let dir = fs::File::open(place.path()).unwrap();
        let spot = Spot { dir: dir.as_fd(), name };

        let made = OwnedFd::from(fs::File::create_new(&path).unwrap());
        let mut rival = Sink::part(spot, 0o600, (true, Id::default())).unwrap();
        assert!(rival.adopted && !is_ours(&made, spot.dir, part).unwrap());
        rival.publish(false).unwrap();
        drop(rival);
        assert!(!is_ours(&made, spot.dir, part).unwrap());

        fs::remove_file(place.path().join("n")).unwrap();
        fs::create_dir(&path).unwrap();
        let made = OwnedFd::from(fs::File::open(&path).unwrap());
        let (held, rival) =
            Stage::make(spot, 0o700, true, (dir.as_fd(), &fstat(&dir).unwrap())).unwrap();
        assert!(rival.adopted);
        rival.publish(spot).unwrap();
        drop(held);
        assert!(!is_ours(&made, spot.dir, part).unwrap());
    }

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

//! A tree that a program of another crate brings here, not copied from a folder: the stage in which it is
//! built, and what its entries get when they are whole. The rules are those of a copy.

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid, chownat, fchmod,
    fchown, fstat, futimens, openat, statat,
};
use std::{
    ffi::{CStr, CString},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};
use thalweg_core::atomic_file::{
    AtomicFile, CallFailed, Destination, Fsync, failed,
    name::OWN_JOURNAL,
    ownership::{LeftAlone, is_trap_at},
    sync_directory, unlink,
};
use thalweg_sys::{Errno, opened::set_times_opened};

use crate::{
    copy::{
        attributes::{SPECIAL, inherit as inherit_attributes, own},
        dest::mode::as_written,
        name_at::NameAt,
        staged_dir::{Origin, StagedDir, remove_leftovers as remove_leftover_files},
    },
    error::Failure,
    journal::Remote,
};

pub use crate::copy::whole_sync::WholeSync;

/// A new folder under its temporary name, with a journal of whose copy it is. It is locked while it is open.
pub struct Stage {
    above: OwnedFd,
    name: CString,
    fd: OwnedFd,
    staged: StagedDir,
}

impl Stage {
    /// Makes the stage of what will be `name` in the folder `above`, or takes over what an earlier run of
    /// this boot left of the same URL. Any other leftover of that name is removed.
    pub fn make(above: OwnedFd, name: CString, source: &Remote) -> Result<Self, CallFailed> {
        let name_at = NameAt { dir: above.as_fd(), name: &name };
        let made = StagedDir::make(name_at, true, Origin::Remote(source));
        let (fd, staged) = made.map_err(|failure| of_failure(&failure))?;
        Ok(Self { above, name, fd, staged })
    }

    /// The folder.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// A leftover that was not used, as another user may have made it.
    pub fn left_alone(&self) -> Option<&LeftAlone> {
        self.staged.left_alone.as_ref()
    }

    /// An earlier run left it.
    pub fn is_adopted(&self) -> bool {
        self.staged.adopted
    }

    /// Its name until it is published.
    pub fn name(&self) -> &CStr {
        &self.staged.name
    }

    /// Leaves it to a later run, or removes it if none would find it; says whether it is still there.
    pub fn leave(self) -> Result<bool, CallFailed> {
        let name_at = NameAt { dir: self.above.as_fd(), name: &self.name };
        self.staged.leave(name_at, &self.fd).map_err(|failure| of_failure(&failure))
    }

    /// Removes it and all that is in it.
    pub fn discard(self) -> Result<(), CallFailed> {
        let name_at = NameAt { dir: self.above.as_fd(), name: &self.name };
        self.staged.discard(name_at, &self.fd).map_err(|failure| of_failure(&failure))
    }

    /// Gives it its name, which must be free, once it has got its own attributes and is on stable storage as far as
    /// asked for. `whole`: its file system, if one call syncs that; opened before anything was written. If that call
    /// fails, nothing of the stage is left.
    pub fn publish(
        self,
        attributes: &Attributes,
        whole: Option<&WholeSync>,
        fsync: Fsync,
    ) -> Result<(), CallFailed> {
        // Before the times are set, which it would change.
        unlink(self.fd.as_fd(), OWN_JOURNAL).map_err(failed("unlinkat"))?;
        attributes.give(self.fd.as_fd())?;
        if let Some(Err(error)) = whole.map(WholeSync::sync) {
            // Which of the files lost bytes is not known.
            let _ = self.discard();
            return Err(error);
        }
        let name_at = NameAt { dir: self.above.as_fd(), name: &self.name };
        self.staged.publish(name_at).map_err(|failure| of_failure(&failure))?;
        if fsync == Fsync::Always { sync_directory(name_at.dir, self.fd.as_fd()) } else { Ok(()) }
    }
}

fn of_failure(failure: &Failure) -> CallFailed {
    match *failure {
        Failure::Sink(call, errno, _) | Failure::Source(call, errno) => CallFailed { call, errno },
        // A stage is asked for nothing else.
        _ => CallFailed { call: "openat", errno: Errno::INVAL },
    }
}

/// Removes the unfinished files that killed runs left in a folder of a stage.
pub fn remove_leftovers(folder: BorrowedFd<'_>) -> Result<(), CallFailed> {
    remove_leftover_files(folder).map_err(|failure| of_failure(&failure))
}

/// Gives a file that is about to replace another one what a copy would take over from that: owner, extended
/// attributes, ACL and mode. See [`inherit_from_replaced`].
pub fn inherit(destination: &mut Destination, from: InheritFrom) {
    if let Destination::Whole { file, replace: true, mode } = destination
        && inherit_from_replaced(file, from)
    {
        *mode = None;
    }
}

/// Whose files leave something to the file that replaces them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InheritFrom {
    /// Those of this user.
    Own,
    /// Those of all users.
    Anyone,
}

/// Gives `file` owner, extended attributes, ACL and mode of the regular file that has its name. Returns `false`, and
/// changes nothing but perhaps the group, if there is none, if its owner cannot be given, or if another user may have put
/// it there.
pub fn inherit_from_replaced<D: AsFd, N: AsRef<CStr>>(
    file: &AtomicFile<D, N>,
    from: InheritFrom,
) -> bool {
    let (dir, name) = (file.folder(), file.name());
    let Ok(old) = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) else { return false };
    let is_file = FileType::from_raw_mode(old.st_mode) == FileType::RegularFile;
    if !is_file || is_trap_at(dir, name).unwrap_or(true) {
        return false;
    }
    let me = rustix::process::geteuid().as_raw();
    if from == InheritFrom::Own && old.st_uid != me {
        return false;
    }
    let owner = (old.st_uid, old.st_gid);
    let has = fstat(&file.fd).is_ok_and(|own| (own.st_uid, own.st_gid) == owner);
    let chown = |uid, gid| fchown(&file.fd, uid, gid);
    if !has && !own(me, owner.0, owner.1, chown).unwrap_or(false) && old.st_uid != me {
        return false;
    }
    inherit_attributes(NameAt { dir, name }, file.fd.as_fd());
    let mode = as_written(me, old.st_mode & 0o7777);
    fchmod(&file.fd, Mode::from_raw_mode(mode)).is_ok()
}

/// What an entry gets when it is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Permission bits.
    pub mode: u32,
    /// User and group; `None`: as they are.
    pub owner: Option<(u32, u32)>,
    /// Last modified: seconds since 1970, and nanoseconds.
    pub mtime: (i64, u32),
}

impl Attributes {
    /// To an open file or folder, in the order in which none undoes another. Without the owner, no set-id
    /// bit: it speaks of the owner.
    pub fn give(&self, fd: BorrowedFd<'_>) -> Result<(), CallFailed> {
        let has = fstat(fd).map_err(failed("fstat"))?;
        // What was made by its own owner, with its own mode, has both.
        let is_own = self.owner == Some((has.st_uid, has.st_gid));
        let has_owner = is_own || self.give_owner(|u, g| fchown(fd, u, g))?;
        let mode = self.mode & if has_owner { !0 } else { !SPECIAL };
        // Another owner takes set-id bits away.
        if has.st_mode & 0o7777 != mode || has_owner && !is_own {
            fchmod(fd, Mode::from_raw_mode(mode)).map_err(failed("fchmod"))?;
        }
        futimens(fd, &self.times()).map_err(failed("utimensat"))
    }

    /// The same to a link, which has no mode. What another process has put in its place is refused.
    pub fn give_to_link(&self, folder: BorrowedFd<'_>, name: &CStr) -> Result<(), CallFailed> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let link = openat(folder, name, flags, Mode::empty()).map_err(failed("openat"))?;
        let found = fstat(&link).map_err(failed("fstat"))?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Symlink {
            return Err(CallFailed { call: "openat", errno: Errno::STALE });
        }
        self.give_owner(|uid, gid| chownat(&link, c"", uid, gid, AtFlags::EMPTY_PATH))?;
        set_times_opened(&link, &self.times()).map_err(failed("utimensat"))
    }

    fn give_owner(
        &self,
        chown: impl Fn(Option<Uid>, Option<Gid>) -> Result<(), Errno>,
    ) -> Result<bool, CallFailed> {
        let Some((uid, gid)) = self.owner else { return Ok(false) };
        own(rustix::process::geteuid().as_raw(), uid, gid, chown).map_err(failed("fchown"))
    }

    fn times(&self) -> Timestamps {
        let (seconds, nanos) = self.mtime;
        Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec { tv_sec: seconds, tv_nsec: nanos.into() },
        }
    }
}

//! Support for trees that another crate serves or downloads: access to directories, the staging directory, and the
//! attributes of complete entries. The rules are those of [`copy`](crate::copy()).

use rustix::{
    fs::{
        AtFlags, FileType, Mode, Stat, Timespec, Timestamps, UTIME_OMIT, fchmod, fstat, fstatfs,
        statat,
    },
    process::geteuid,
};
use std::{
    ffi::{CStr, CString},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};
use thalweg_core::atomic_file::{
    AtomicFile, CallFailed, Destination, Fsync, failed,
    name::OWN_JOURNAL,
    ownership::{LeftAlone, is_own, is_trap_at},
    sync_directory, unlink,
};
use thalweg_sys::Errno;

use crate::{
    AttributeDifferences, KeptEntries,
    copy::{
        attributes::{SPECIAL, inherit as inherit_attributes},
        dest::mode::as_written,
        name_at::NameAt,
        run::may_give_to,
        staged_dir::{StageSource, StagedDir, remove_leftovers as remove_leftover_files},
    },
    error::CopyFailure,
    holder::{Holder, open_node},
    identity::kind,
    journal::Remote,
    xattrs::XattrOutcome,
};

mod xattrs;

pub use crate::{
    copy::whole_sync::WholeSync,
    fs::{
        beneath::{Beneath, FollowLinks},
        list::{each_entry, listing_buffer},
        special::{NewEntry, TemporaryEntry},
    },
    xattrs::EntryXattrs,
};

/// A new directory under its temporary name, with a journal that identifies its source. It is locked while it is
/// open.
pub struct RemoteStage {
    above: OwnedFd,
    name: CString,
    fd: OwnedFd,
    staged: StagedDir,
}

impl RemoteStage {
    /// Creates the staging directory for `name` in `above`, or adopts a leftover of this boot with an equal URL.
    /// Removes any other leftover of that name, unless another process uses it or another user may have created it.
    pub fn make(above: OwnedFd, name: CString, source: &Remote) -> Result<Self, CallFailed> {
        let name_at = NameAt { dir: above.as_fd(), name: &name };
        let (fd, staged) = StagedDir::make(name_at, true, StageSource::Remote(source))?;
        Ok(Self { above, name, fd, staged })
    }

    /// Returns the open directory.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns the leftover that was not used because another user may have created it.
    pub fn left_alone(&self) -> Option<&LeftAlone> {
        self.staged.left_alone.as_ref()
    }

    /// Returns `true` if an earlier run left the directory.
    pub fn is_adopted(&self) -> bool {
        self.staged.adopted
    }

    /// Returns the temporary name of the directory.
    pub fn name(&self) -> &CStr {
        &self.staged.name
    }

    /// Leaves the directory for a later run, or removes it if no later run would find it. Returns `true` if it still
    /// exists.
    pub fn leave(self) -> Result<bool, CallFailed> {
        let name_at = NameAt { dir: self.above.as_fd(), name: &self.name };
        Ok(self.staged.leave(name_at, &self.fd)?)
    }

    /// Removes the directory and all its contents.
    pub fn discard(self) -> Result<(), CallFailed> {
        let name_at = NameAt { dir: self.above.as_fd(), name: &self.name };
        Ok(self.staged.discard(name_at, &self.fd)?)
    }

    /// Sets the attributes of the directory, syncs it as requested, and renames it to its final name, which must not
    /// exist. `whole` is the file system of the tree, if one call can sync it. The caller must have opened `whole`
    /// before it wrote anything. If that sync fails, the staging directory is removed. Returns the number of extended
    /// attributes that the file system refused.
    pub fn publish(
        self,
        attributes: &EntryAttributes,
        whole: Option<&WholeSync>,
        fsync: Fsync,
    ) -> Result<u64, CallFailed> {
        // The journal is removed before the times are set, because removing it changes them.
        unlink(self.fd.as_fd(), OWN_JOURNAL).map_err(failed("unlinkat"))?;
        let refused = attributes.give(self.fd.as_fd())?;
        if let Some(Err(error)) = whole.map(WholeSync::sync) {
            // `syncfs` does not report which files lost bytes, so all of them are removed.
            let _ = self.discard();
            return Err(error);
        }
        let name_at = NameAt { dir: self.above.as_fd(), name: &self.name };
        self.staged.publish(name_at)?;
        if fsync == Fsync::Always {
            sync_directory(name_at.dir, self.fd.as_fd())?;
        }
        Ok(refused)
    }
}

/// Removes the partial files that killed processes left in a directory inside a staging directory.
pub fn remove_leftovers(folder: BorrowedFd<'_>) -> Result<(), CallFailed> {
    Ok(remove_leftover_files(folder)?)
}

/// Gives a file that is about to replace another one the attributes that a copy would inherit: owner, extended
/// attributes, ACL and mode. See [`inherit_from_replaced`].
pub fn inherit(destination: &mut Destination, from: InheritFrom) {
    if let Destination::Whole { file, replace: true, mode } = destination
        && inherit_from_replaced(file, from)
    {
        *mode = None;
    }
}

/// Selects the existing files that pass on attributes to their replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InheritFrom {
    /// Only files of this user.
    Own,
    /// Files of all users.
    Anyone,
}

/// Gives `file` the owner, extended attributes, ACL and mode of the regular file that has its name. Returns `false` if
/// no such file exists, its owner cannot be set, or another user may have planted it. `file` then stays unchanged,
/// except possibly for its group.
pub fn inherit_from_replaced<D: AsFd, N: AsRef<CStr>>(
    file: &AtomicFile<D, N>,
    from: InheritFrom,
) -> bool {
    let (dir, name) = (file.folder(), file.name());
    let Ok(old) = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) else { return false };
    if kind(&old) != FileType::RegularFile || is_trap_at(dir, name).unwrap_or(true) {
        return false;
    }
    let me = geteuid().as_raw();
    if from == InheritFrom::Own && old.st_uid != me {
        return false;
    }
    let (uid, gid) = (old.st_uid, old.st_gid);
    let has = fstat(&file.fd).is_ok_and(|own| (own.st_uid, own.st_gid) == (uid, gid));
    let give = || Holder::Fd(file.fd.as_fd()).own(me, uid, gid).unwrap_or(false);
    if !has && !give() && uid != me {
        return false;
    }
    inherit_attributes(NameAt { dir, name }, file.fd.as_fd());
    let mode = as_written(me, old.st_mode & 0o7777);
    fchmod(&file.fd, Mode::from_raw_mode(mode)).is_ok()
}

/// The directory that keeps an entry before it is replaced, and the path of the entry in it.
#[derive(Clone, Copy, Debug)]
pub struct KeptPath<'a> {
    /// The directory that keeps replaced entries.
    pub entries: &'a KeptEntries,
    /// Path of the entry below the destination, and in the directory of kept entries.
    pub path: &'a Path,
}

impl KeptPath<'_> {
    /// Keeps the entry, which also stays in `folder` until the caller renames its replacement over it. Succeeds if
    /// another process has removed the entry.
    pub fn keep(self, folder: BorrowedFd<'_>, name: &CStr) -> Result<(), CallFailed> {
        match self.entries.keep_replaced(folder, name, self.path) {
            Ok(()) | Err(CopyFailure::Sink(_, Errno::NOENT, _)) => Ok(()),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Moves the entry, which is not a directory, out of `folder`.
    pub fn take(self, folder: BorrowedFd<'_>, name: &CStr) -> Result<(), CallFailed> {
        Ok(self.entries.take(folder, name, self.path)?)
    }
}

/// Creates an entry with these attributes, which atomically replaces an existing entry of this name. `kept` says where
/// to keep the existing entry. Returns the number of extended attributes that the file system refused.
pub fn replace_by_node(
    folder: BorrowedFd<'_>,
    name: &CStr,
    new: &NewEntry<'_>,
    attributes: &EntryAttributes,
    kept: Option<KeptPath<'_>>,
) -> Result<u64, CallFailed> {
    let temporary = new.create_beside(folder, name)?;
    let refused = attributes.give_to_node(folder, temporary.name(), new)?;
    kept.map_or(Ok(()), |kept| kept.keep(folder, name))?;
    temporary.install(name, false)?;
    Ok(refused)
}

/// The attributes of a complete entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryAttributes {
    /// Permission bits.
    pub mode: u32,
    /// User and group; `None`: leave them unchanged.
    pub owner: Option<(u32, u32)>,
    /// Modification time: seconds since 1970, and nanoseconds.
    pub mtime: (i64, u32),
    /// Extended attributes and ACLs; `None`: leave them unchanged. Symbolic links do not get them.
    pub xattrs: Option<EntryXattrs>,
}

impl EntryAttributes {
    /// Sets the attributes of an open file or directory. If the owner cannot be set, set-id bits are not set either,
    /// because they are meant for that owner. Returns the number of extended attributes that the file system refused.
    pub fn give(&self, fd: BorrowedFd<'_>) -> Result<u64, CallFailed> {
        let has = fstat(fd).map_err(failed("fstat"))?;
        self.give_to(&Holder::Fd(fd), &has)
    }

    /// Sets the attributes of a symbolic link, which has no mode, or of a special file. This process must have just
    /// created the entry. Fails if another process replaced it. Returns the number of extended attributes that the file
    /// system refused.
    pub fn give_to_node(
        &self,
        folder: BorrowedFd<'_>,
        name: &CStr,
        new: &NewEntry<'_>,
    ) -> Result<u64, CallFailed> {
        let node = open_node(folder, name).map_err(failed("openat"))?;
        let found = fstat(&node).map_err(failed("fstat"))?;
        let is_special = new.kind() != FileType::Symlink;
        let is_other = is_special && (found.st_nlink > 1 || !is_own(folder, &found));
        if is_other || !new.may_be(&found) {
            return Err(CallFailed { call: "openat", errno: Errno::STALE });
        }
        self.give_to(&Holder::PathFd(node.as_fd()), &found)
    }

    /// Sets the attributes in an order in which no step undoes an earlier one. `has`: the current attributes.
    fn give_to(&self, holder: &Holder<'_>, has: &Stat) -> Result<u64, CallFailed> {
        let is_link = kind(has) == FileType::Symlink;
        // If this process created the entry with the wanted owner and mode, neither fchown nor fchmod is needed.
        let is_own = self.owner == Some((has.st_uid, has.st_gid));
        let has_owner = match self.owner {
            Some((uid, gid)) if !is_own => holder.own(geteuid().as_raw(), uid, gid)?,
            owner => owner.is_some(),
        };
        let xattrs = self.xattrs.as_ref().filter(|_| !is_link);
        let given = xattrs.map(|xattrs| xattrs.give_exactly(holder, has.st_mode & 0o7777));
        let given = given.transpose()?.flatten();
        let mut is_changed = given.is_some() || has_owner && !is_own;
        let XattrOutcome { answer, dropped, allowed } = given.unwrap_or_default();
        answer?;
        let mode = self.mode & if has_owner { SPECIAL | allowed } else { allowed };
        is_changed |= has.st_mode & 0o7777 != mode;
        // The mode is set last. A change of owner clears set-id bits, and setting an ACL changes the mode.
        if is_changed && !is_link {
            holder.chmod(mode)?;
        }
        let (tv_sec, nanos) = self.mtime;
        holder.set_times(&Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec { tv_sec, tv_nsec: nanos.into() },
        })?;
        Ok(dropped.len() as u64)
    }

    /// Compares mode, owner and time with those of an existing entry of `directory`, as far as this user may set them
    /// and the file system can store them.
    pub fn differ_from(&self, there: &Stat, directory: BorrowedFd<'_>) -> AttributeDifferences {
        let is_root = geteuid().is_root();
        // If the owner cannot be set, set-id bits are not set, so they are not compared.
        let has_owner = |owner| is_root || owner == (there.st_uid, there.st_gid);
        let bits = if self.owner.is_some_and(has_owner) { 0o7777 } else { 0o777 };
        let mut wanted = *there;
        wanted.st_mode = there.st_mode & !0o7777 | self.mode & bits;
        (wanted.st_uid, wanted.st_gid) = self.owner.unwrap_or((there.st_uid, there.st_gid));
        (wanted.st_mtime, wanted.st_mtime_nsec) = (self.mtime.0, self.mtime.1.into());
        let differs = AttributeDifferences::between(&wanted, there, || fstatfs(directory));
        let group = differs.group && may_give_to(wanted.st_gid);
        AttributeDifferences { owner: differs.owner && is_root, group, ..differs }
    }
}

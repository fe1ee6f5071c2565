//! The attributes of an entry without contents that was just created.

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, Timestamps, chownat, fstat, openat, utimensat,
};
use std::{
    ffi::CStr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};
use thalweg_sys::{
    Errno,
    opened::{chmod_opened, set_times_opened},
};

use crate::{
    Becomes, Refusal,
    copy::{attributes, copy_entry::CopyEntry, name_at::CopyPlacement, worker::CopyWorker},
    error::{Attempt, CopyFailure, at_sink, at_source},
    identity::kind,
    xattrs::{ALL, Holder, SourceXattrs, XattrOutcome},
};

/// Flags to open a node: a symbolic link, device, FIFO or socket, which has no contents to copy.
const NODE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A node that was just created.
struct NewNode<'a> {
    dir: BorrowedFd<'a>,
    name: &'a CStr,
    /// The entry, opened with `O_PATH`. A call by name could change another entry that a process put there. `None` for
    /// a symbolic link in a staging directory, which no other user can enter.
    fd: Option<OwnedFd>,
    /// User and group of the node, if known.
    owner: Option<(u32, u32)>,
}

impl<'a> NewNode<'a> {
    /// Opens the entry. Fails if another process replaced it.
    fn find(
        entry: &CopyEntry<'_>,
        stat: &Stat,
        dir: BorrowedFd<'a>,
        name: &'a CStr,
    ) -> Attempt<Self> {
        let owner = entry.directory.births.owner;
        if entry.directory.is_staged && kind(stat) == FileType::Symlink {
            return Ok(Self { dir, name, fd: None, owner });
        }
        let fd = openat(dir, name, NODE, Mode::empty()).map_err(at_sink("openat"))?;
        let own = fstat(&fd).map_err(at_sink("fstat"))?;
        let is_made_by_us = kind(&own) == kind(stat)
            && own.st_rdev == stat.st_rdev
            && own.st_nlink <= 1
            && owner.is_none_or(|(uid, _)| uid == own.st_uid);
        if !is_made_by_us {
            return Err(CopyFailure::Refused(Refusal::Replaced));
        }
        Ok(Self { dir, name, fd: Some(fd), owner: Some((own.st_uid, own.st_gid)) })
    }

    /// Returns the directory, the path and the flags that name the entry in a system call without following a link.
    fn place(&self) -> (BorrowedFd<'_>, &CStr, AtFlags) {
        match &self.fd {
            Some(fd) => (fd.as_fd(), c"", AtFlags::EMPTY_PATH),
            None => (self.dir, self.name, AtFlags::SYMLINK_NOFOLLOW),
        }
    }

    fn set_times(&self, times: &Timestamps) -> Result<(), Errno> {
        match &self.fd {
            Some(fd) => set_times_opened(fd, times),
            None => utimensat(self.dir, self.name, times, AtFlags::SYMLINK_NOFOLLOW),
        }
    }

    /// Sets owner, extended attributes, mode and times. The mode is set after the owner, because a change of owner
    /// clears set-id bits.
    fn apply(&self, worker: &CopyWorker<'_>, entry: &CopyEntry<'_>, stat: &Stat) -> Attempt<()> {
        let keep = worker.run.options.preserve;
        let is_link = kind(stat) == FileType::Symlink;
        let mut applied = Ok(());
        let mut mode = stat.st_mode & 0o7777;
        if keep.owner && self.owner != Some((stat.st_uid, stat.st_gid)) {
            let (at, path, itself) = self.place();
            let chown = |uid, gid| chownat(at, path, uid, gid, itself);
            let owned = attributes::own(worker.run.me.uid, stat.st_uid, stat.st_gid, chown);
            // With another owner, set-id bits would grant the rights of the wrong user or group.
            if owned != Ok(true) {
                mode &= !attributes::SPECIAL;
            }
            applied = owned.map(drop).map_err(at_sink("fchownat"));
        }
        if keep.looks_at_xattrs() {
            // Symbolic links have no ACLs.
            let given = self.give_xattrs(worker, entry, entry.directory.births.acl && !is_link);
            let allowed = given.as_ref().map_or(ALL, |given| given.allowed);
            mode &= attributes::SPECIAL | allowed;
            applied = applied.and(given.and_then(|given| given.answer));
        }
        if let Some(fd) = self.fd.as_ref().filter(|_| keep.mode && !is_link) {
            applied = applied.and(chmod_opened(fd, mode).map_err(at_sink("fchmodat2")));
        }
        if keep.times {
            let set = self.set_times(&attributes::times(stat));
            applied = applied.and(set.map_err(at_sink("utimensat")));
        }
        applied
    }

    fn give_xattrs(
        &self,
        worker: &CopyWorker<'_>,
        entry: &CopyEntry<'_>,
        born_with_acl: bool,
    ) -> Attempt<XattrOutcome> {
        let keep = worker.run.options.preserve;
        let source = openat(entry.from.open()?, entry.source, NODE, Mode::empty());
        let source = source.map_err(at_source("openat"))?;
        let taken = match SourceXattrs::from(&Holder::of_path_fd(source.as_fd()), keep) {
            // Without /proc these attributes cannot be accessed; symbolic links and devices rarely have any.
            Err(CopyFailure::Source(_, Errno::NOENT)) if !keep.strict => {
                return Ok(XattrOutcome::default());
            }
            answer => answer?,
        };
        if taken.is_empty() && !born_with_acl {
            return Ok(XattrOutcome::default());
        }
        let opened = || openat(self.dir, self.name, NODE, Mode::empty()).map_err(at_sink("openat"));
        let own = if self.fd.is_none() { Some(opened()?) } else { None };
        let Some(sink) = self.fd.as_ref().or(own.as_ref()) else {
            return Ok(XattrOutcome::default());
        };
        let given = taken.give(&Holder::of_path_fd(sink.as_fd()), keep, born_with_acl);
        worker.run.dropped(&|| entry.destination_path(), &given.dropped);
        Ok(given)
    }
}

/// Sets the attributes of a new entry. Reports those that the destination refuses.
pub(crate) fn apply_attributes(
    worker: &CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    CopyPlacement { dir, stat }: CopyPlacement<'_>,
    name: &CStr,
) {
    let keep = worker.run.options.preserve;
    let has_any = keep.owner || keep.mode || keep.times || keep.looks_at_xattrs();
    // A hard or symbolic link to the source needs no attributes of its own.
    if worker.run.options.becomes != Becomes::Copy || !has_any {
        return;
    }
    let applied =
        NewNode::find(entry, stat, dir, name).and_then(|node| node.apply(worker, entry, stat));
    if let Err(failure) = applied {
        worker.incomplete(entry, failure);
    }
}

//! Copies symbolic links as links.

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, Timestamps, chownat, fstat, openat, readlinkat, statat,
    utimensat,
};
use std::{
    ffi::{CStr, CString},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};
use thalweg_core::atomic_file::{
    name::{PART, beside},
    unlink,
};
use thalweg_sys::{
    Errno, io,
    opened::{chmod_opened, set_times_opened},
};

use crate::{
    AttributeDifferences, Becomes, ChangeAction, Refusal, Skip,
    copy::{
        attributes,
        compared::of_node,
        contents::recheck::check_node,
        copy_entry::CopyEntry,
        dest::{
            backup::set_aside,
            conflict::resolve_conflict,
            existing::{DestinationVerdict, Existing},
            publish::ignore,
        },
        entry::hardlink::{LeftName, LinkOutcome, leave_name, link_name, wake_for},
        links::{LinkClaim, id_of},
        name_at::{CopyPlacement, NameAt},
        run::Concurrency,
        shared::ForeseenName,
        worker::CopyWorker,
    },
    error::{Attempt, CopyFailure, at_sink, at_source},
    fs::special::NewEntry,
    identity::{Id, kind},
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
}

/// Copies a symbolic link.
pub(crate) fn copy_symlink(worker: &mut CopyWorker<'_>, entry: &CopyEntry<'_>) -> Attempt<()> {
    let stat = statat(entry.from.open()?, entry.source, AtFlags::SYMLINK_NOFOLLOW);
    let mut stat = stat.map_err(at_source("newfstatat"))?;
    worker.run.options.given.apply(&mut stat);
    let target = readlinkat(entry.from.open()?, entry.source, Vec::new());
    let target = target.map_err(at_source("readlinkat"))?;
    make_node(worker, entry, &stat, &NewEntry::Symlink(&target)).map(drop)
}

/// Creates a node, sets its attributes and counts it as a link. Returns `false` if the node was not created.
pub(crate) fn make_node(
    worker: &mut CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    stat: &Stat,
    new: &NewEntry<'_>,
) -> Attempt<bool> {
    let run = worker.run;
    let is_copy = run.options.becomes == Becomes::Copy;
    let counts = is_copy && run.options.preserve.links && stat.st_nlink > 1;
    let Some(dir) = entry.directory.open()? else {
        foresee_node(worker, entry, stat, None, counts);
        return Ok(true);
    };
    let dir = dir.as_fd();
    let at = CopyPlacement { dir, stat };
    let verdict = if entry.directory.is_fresh {
        DestinationVerdict::New
    } else {
        resolve_conflict(run, entry, dir, stat)?
    };
    let mut differs = None;
    if let DestinationVerdict::Replace(there) = &verdict
        && run.options.sync.is_some()
        && is_copy
    {
        let found = of_node(run, entry, dir, [stat, &there.stat], new)?;
        differs = Some(found);
        if !found.any() {
            return keep_node(worker, entry, at, there, counts);
        }
    }
    if let DestinationVerdict::Skip(reason, there) = verdict {
        let has_names = counts && reason == Skip::Newer && !run.options.dry_run;
        return leave_node(worker, entry, at, reason, &there, has_names).map(|()| false);
    }
    if run.options.dry_run {
        foresee_node(worker, entry, stat, differs, counts);
        return Ok(true);
    }
    let mut is_first = true;
    loop {
        match if counts { worker.shared.links.claim(entry, stat) } else { LinkClaim::First } {
            LinkClaim::Waits => return Ok(false),
            LinkClaim::Again(name) => match link_name(worker, entry, at, &name)? {
                LinkOutcome::Done => {
                    note_node(worker, entry, stat, differs);
                    return Ok(true);
                }
                LinkOutcome::Lost => {}
                LinkOutcome::Refused => {
                    is_first = false;
                    break;
                }
            },
            LinkClaim::First => break,
        }
    }
    let made = make_with_attributes(worker, entry, at, &verdict, new);
    if counts && is_first {
        let copy = if made.is_ok() { id_of(dir, entry.name) } else { Ok(None) };
        let woken = wake_for(worker, entry, stat, copy);
        made?;
        woken?;
    } else {
        made?;
    }
    worker.tally.links += 1;
    note_node(worker, entry, stat, differs);
    Ok(true)
}

/// Reports the entry that a dry run would create.
fn foresee_node(
    worker: &mut CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    stat: &Stat,
    differs: Option<AttributeDifferences>,
    has_names: bool,
) {
    worker.report_copied(entry, None);
    if has_names {
        worker.foresee_name(stat, None);
    }
    note_node(worker, entry, stat, differs);
}

/// Reports a new or replaced entry of a sync. `differs`: the differences of the replaced entry.
fn note_node(
    worker: &mut CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    stat: &Stat,
    differs: Option<AttributeDifferences>,
) {
    match differs {
        Some(differs) if differs.kind || differs.content => {
            worker.note_change(entry, ChangeAction::Replace, stat, differs);
        }
        Some(differs) => worker.note_attributes(entry, stat, differs),
        None => worker.note_copied(entry, stat, None),
    }
}

/// Keeps an existing entry of a sync that is equal to its source. `has_names` is `true` if the source has other names,
/// which are then linked to the entry.
fn keep_node(
    worker: &mut CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    at: CopyPlacement<'_>,
    there: &Existing,
    has_names: bool,
) -> Attempt<bool> {
    let none = AttributeDifferences::default();
    if worker.run.options.dry_run {
        let is_linked =
            has_names && worker.foresee_name(at.stat, Some(&there.stat)) == ForeseenName::Linked;
        if is_linked {
            worker.note_change(entry, ChangeAction::Link, at.stat, none);
        } else {
            worker.note_attributes(entry, at.stat, none);
        }
        return Ok(false);
    }
    leave_node(worker, entry, at, Skip::Done, there, has_names).map(|()| false)
}

/// Keeps the existing entry. If the source has more names, they are linked to it. If another name is already copied, a
/// link to that copy replaces the existing entry.
fn leave_node(
    worker: &mut CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    at: CopyPlacement<'_>,
    reason: Skip,
    there: &Existing,
    has_names: bool,
) -> Attempt<()> {
    let CopyPlacement { dir, stat } = at;
    let is_alike = kind(stat) == kind(&there.stat) && stat.st_rdev == there.stat.st_rdev;
    let left = if has_names && is_alike {
        leave_name(worker, entry, at, &there.stat)?
    } else {
        LeftName::Stays
    };
    let none = AttributeDifferences::default();
    if matches!(left, LeftName::Linked) {
        worker.note_change(entry, ChangeAction::Link, stat, none);
    }
    if matches!(left, LeftName::Linked | LeftName::Waits) {
        return Ok(());
    }
    worker.note_attributes(entry, stat, none);
    if matches!(left, LeftName::First) {
        wake_for(worker, entry, stat, id_of(dir, entry.name))?;
    }
    worker.skip(entry, reason);
    if worker.run.options.becomes == Becomes::Copy {
        check_node(worker, entry, at, there)?;
    }
    Ok(())
}

fn make_with_attributes(
    worker: &mut CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    at: CopyPlacement<'_>,
    verdict: &DestinationVerdict,
    new: &NewEntry<'_>,
) -> Attempt<()> {
    let CopyPlacement { dir, stat } = at;
    let mut backup = None;
    match (new.create(dir, entry.name)?, verdict) {
        (true, _) => dress_node(worker, entry, at, entry.name),
        (false, _) if entry.directory.is_fresh => {
            return Err(CopyFailure::Refused(Refusal::JustCreated));
        }
        (false, DestinationVerdict::Replace(there)) => {
            let temporary = make_beside(worker, entry, at, new)?;
            dress_node(worker, entry, at, &temporary);
            let name_at = NameAt { dir, name: entry.name };
            let renamed = set_aside(worker.run.options, name_at, entry, stat).and_then(|name| {
                backup = name;
                io::rename(dir, &*temporary, dir, entry.name, false).map_err(at_sink("renameat2"))
            });
            // Another worker may have linked the file first. If both names then refer to one file, `rename` does
            // nothing and leaves both.
            if renamed.is_err() || worker.run.concurrency == Concurrency::Linkers {
                ignore(unlink(dir, &temporary));
            }
            renamed?;
            worker.report_removed(entry, Some(there), stat);
        }
        (false, _) if worker.run.options.replaces_nothing() => worker.skip(entry, Skip::Exists),
        (false, _) => return Err(CopyFailure::Refused(Refusal::Replaced)),
    }
    worker.report_copied(entry, backup.as_deref());
    Ok(())
}

/// Creates the replacement of an existing entry under a temporary name, and returns that name.
fn make_beside(
    worker: &CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    CopyPlacement { dir, stat }: CopyPlacement<'_>,
    new: &NewEntry<'_>,
) -> Attempt<CString> {
    if worker.run.concurrency == Concurrency::Linkers {
        // All workers use one temporary name for this entry, so a worker finds the leftover of a killed worker.
        let name = beside(entry.name, &[PART, b".link"].concat());
        if new.create(dir, &name)? || id_of(dir, &name)? == Some(Id::of(stat)) {
            return Ok(name);
        }
        unlink(dir, &name).map_err(at_sink("unlinkat"))?;
    }
    Ok(new.create_beside(dir, entry.name)?)
}

fn dress_node(
    worker: &CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    CopyPlacement { dir, stat }: CopyPlacement<'_>,
    name: &CStr,
) {
    // A hard or symbolic link to the source needs no attributes of its own.
    if worker.run.options.becomes != Becomes::Copy {
        return;
    }
    let keep = worker.run.options.preserve;
    if !(keep.owner || keep.mode || keep.times || keep.looks_at_xattrs()) {
        return;
    }
    let node = match NewNode::find(entry, stat, dir, name) {
        Ok(node) => node,
        Err(failure) => return worker.incomplete(entry, failure),
    };
    let (at, path, itself) = node.place();
    let mut dressed = Ok(());
    let mut mode = stat.st_mode & 0o7777;
    if keep.owner && node.owner != Some((stat.st_uid, stat.st_gid)) {
        let chown = |uid, gid| chownat(at, path, uid, gid, itself);
        let owned = attributes::own(worker.run.me.uid, stat.st_uid, stat.st_gid, chown);
        // With another owner, set-id bits would grant the rights of the wrong user or group.
        if owned != Ok(true) {
            mode &= !attributes::SPECIAL;
        }
        dressed = owned.map(drop).map_err(at_sink("fchownat"));
    }
    if keep.looks_at_xattrs() {
        // Symbolic links have no ACLs.
        let born_with_acl = entry.directory.births.acl && kind(stat) != FileType::Symlink;
        let given = give_xattrs(worker, entry, &node, born_with_acl);
        let allowed = given.as_ref().map_or(ALL, |given| given.allowed);
        mode &= attributes::SPECIAL | allowed;
        dressed = dressed.and(given.and_then(|given| given.answer));
    }
    // The mode is set after the owner, because a change of owner clears set-id bits.
    if let Some(fd) = node.fd.as_ref().filter(|_| keep.mode && kind(stat) != FileType::Symlink) {
        dressed = dressed.and(chmod_opened(fd, mode).map_err(at_sink("fchmodat2")));
    }
    if keep.times {
        let set = node.set_times(&attributes::times(stat));
        dressed = dressed.and(set.map_err(at_sink("utimensat")));
    }
    if let Err(failure) = dressed {
        worker.incomplete(entry, failure);
    }
}

fn give_xattrs(
    worker: &CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    node: &NewNode<'_>,
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
    let opened = || openat(node.dir, node.name, NODE, Mode::empty()).map_err(at_sink("openat"));
    let own = if node.fd.is_none() { Some(opened()?) } else { None };
    let Some(sink) = node.fd.as_ref().or(own.as_ref()) else { return Ok(XattrOutcome::default()) };
    let given = taken.give(&Holder::of_path_fd(sink.as_fd()), keep, born_with_acl);
    worker.run.dropped(&|| entry.destination_path(), &given.dropped);
    Ok(given)
}

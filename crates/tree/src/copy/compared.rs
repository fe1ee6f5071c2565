//! Compares existing entries with their sources, by the rules of a sync, and reports the changes.

use rustix::fs::{AtFlags, FileType, Stat, fstatfs, readlinkat, statat};
use std::{
    os::fd::{AsFd, BorrowedFd},
    path::PathBuf,
};
use thalweg_sys::Errno;

use crate::{
    AttributeDifferences, ChangeAction, CopyOptions, Event, SyncChange,
    copy::{copy_entry::CopyEntry, run::CopyRun, shared::ForeseenName, worker::CopyWorker},
    error::{Attempt, CopyFailure, at_sink},
    fs::special::NewEntry,
    identity::{Id, kind, size},
    names::os,
    times,
    xattrs::{Holder, SourceXattrs},
};

/// Returns the differences that both `stat` results show. Only attributes that the copy preserves, and that this user
/// may set, are compared.
pub(crate) fn of_stats(
    run: &CopyRun<'_>,
    dir: BorrowedFd<'_>,
    source: &Stat,
    there: &Stat,
) -> AttributeDifferences {
    let keep = run.options.preserve;
    let is_other = kind(source) != kind(there);
    if is_other {
        return AttributeDifferences { kind: true, ..AttributeDifferences::default() };
    }
    let is_file = kind(source) == FileType::RegularFile;
    let owner = keep.owner && run.me.uid == 0 && source.st_uid != there.st_uid;
    let group = keep.owner && source.st_gid != there.st_gid && run.me.may_give_to(source.st_gid);
    let mode = keep.mode && kind(source) != FileType::Symlink && {
        // Set-id bits are dropped if the owner cannot be kept.
        let keeps_owner =
            [source.st_uid, source.st_gid] == [there.st_uid, there.st_gid] || run.me.uid == 0;
        let bits = if keeps_owner || !keep.owner { 0o7777 } else { 0o777 };
        (source.st_mode ^ there.st_mode) & bits != 0
    };
    AttributeDifferences {
        size: is_file && source.st_size != there.st_size,
        time: keep.times && !times::is_same(there, source, || fstatfs(dir)),
        mode,
        owner,
        group,
        ..AttributeDifferences::default()
    }
}

/// Adds the differences of ACLs and extended attributes.
pub(crate) fn add_xattrs(
    run: &CopyRun<'_>,
    holders: [&Holder<'_>; 2],
    differs: &mut AttributeDifferences,
) -> Attempt<()> {
    if !run.options.preserve.looks_at_xattrs() {
        return Ok(());
    }
    let read = |holder| match SourceXattrs::from(holder, run.options.preserve) {
        Ok(taken) => Ok(taken.settable_by(run.me.uid).sorted()),
        // Without /proc the attributes of a name cannot be read.
        Err(CopyFailure::Source(_, Errno::NOENT)) => Ok(SourceXattrs::default()),
        Err(failure) => Err(failure),
    };
    let [source, there] = holders;
    let (ours, theirs) = (read(source)?, read(there)?);
    (differs.acl, differs.xattrs) = ours.differs_from(&theirs);
    Ok(())
}

/// Returns the names of an entry on both sides, as holders of extended attributes.
fn entry_holders<'h>(
    entry: &CopyEntry<'_>,
    from: BorrowedFd<'_>,
    dir: BorrowedFd<'_>,
    follows: bool,
) -> [Holder<'h>; 2] {
    [Holder::of_entry(from, entry.source, follows), Holder::of_entry(dir, entry.name, false)]
}

/// Returns all differences between a source and an existing entry, except those of contents.
pub(crate) fn of_entry(
    run: &CopyRun<'_>,
    entry: &CopyEntry<'_>,
    dir: BorrowedFd<'_>,
    source: &Stat,
    there: &Stat,
) -> Attempt<AttributeDifferences> {
    let mut differs = of_stats(run, dir, source, there);
    if !differs.kind && kind(source) != FileType::Symlink {
        let from = entry.from.open()?;
        let follows = run.options.follows(entry.named_by_caller());
        let [ours, theirs] = entry_holders(entry, from.as_fd(), dir, follows);
        add_xattrs(run, [&ours, &theirs], &mut differs)?;
    }
    Ok(differs)
}

/// Returns `true` if a regular file has an equal copy, and counts it. Opens neither of them. Returns `false` also for
/// files that need a closer look.
pub(crate) fn is_unchanged(worker: &mut CopyWorker<'_>, entry: &CopyEntry<'_>) -> Attempt<bool> {
    let run = worker.run;
    let options = run.options;
    if options.sync.is_none()
        || options.compares_bytes()
        || options.verify.is_some()
        || entry.directory.is_staged
        || entry.directory.is_fresh
    {
        return Ok(false);
    }
    let Some(dir) = entry.directory.open()? else { return Ok(false) };
    let follows = options.follows(entry.named_by_caller());
    let flags = if follows { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    let source = statat(entry.from.open()?, entry.source, flags);
    let there = statat(&dir, entry.name, AtFlags::SYMLINK_NOFOLLOW);
    let (Ok(mut source), Ok(there)) = (source, there) else { return Ok(false) };
    options.given.apply(&mut source);
    let is_file = |stat: &Stat| kind(stat) == FileType::RegularFile;
    if !is_file(&source)
        || !is_file(&there)
        || options.links_names(entry.named_by_caller(), source.st_nlink)
        || of_entry(run, entry, dir.as_fd(), &source, &there)?.any()
    {
        return Ok(false);
    }
    run.expect_not_listed_over(&source, || entry.source_path());
    worker.tally.sync.unchanged += 1;
    worker.tally.skipped += 1;
    worker.list_file(entry);
    worker.take_up(entry, 0);
    worker.settle(size(&source));
    Ok(true)
}

/// Returns the differences between an entry without contents and the existing entry of its name.
pub(crate) fn of_node(
    run: &CopyRun<'_>,
    entry: &CopyEntry<'_>,
    dir: BorrowedFd<'_>,
    stats: [&Stat; 2],
    new: &NewEntry<'_>,
) -> Attempt<AttributeDifferences> {
    let [source, there] = stats;
    let mut differs = of_entry(run, entry, dir, source, there)?;
    differs.content = !differs.kind
        && match new {
            NewEntry::Symlink(target) => {
                let theirs = readlinkat(dir, entry.name, Vec::new());
                theirs.map_err(at_sink("readlinkat"))?.as_c_str() != *target
            }
            NewEntry::HardLink { .. } => false,
            NewEntry::Special { .. } => source.st_rdev != there.st_rdev,
        };
    Ok(differs)
}

impl CopyWorker<'_> {
    /// Counts and reports a new or replaced entry. `there`: the attributes of the entry that had its name.
    pub fn note_copied(&mut self, entry: &CopyEntry<'_>, source: &Stat, there: Option<&Stat>) {
        if self.run.options.sync.is_none() {
            return;
        }
        // An entry of a staging directory is not visible yet.
        let there = there.filter(|_| !entry.directory.is_staged);
        let dir = entry.directory.open().ok().flatten();
        let Some((there, dir)) = there.zip(dir) else {
            let none = AttributeDifferences::default();
            return self.note_change(entry, ChangeAction::Create, source, none);
        };
        let mut differs = of_stats(self.run, dir.as_fd(), source, there);
        differs.content = !differs.any() || self.run.options.compares_bytes() && !differs.size;
        self.note_change(entry, ChangeAction::Replace, source, differs);
    }

    /// Counts and reports an entry that got other attributes, or none.
    pub fn note_attributes(
        &mut self,
        entry: &CopyEntry<'_>,
        source: &Stat,
        differs: AttributeDifferences,
    ) {
        if self.run.options.sync.is_none() {
            return;
        }
        if entry.directory.is_staged {
            // An earlier run left it in a directory that is not visible yet.
            let none = AttributeDifferences::default();
            return self.note_change(entry, ChangeAction::Create, source, none);
        }
        if differs.any() {
            self.note_change(entry, ChangeAction::Attributes, source, differs);
        } else {
            self.tally.sync.unchanged += 1;
        }
    }

    /// Counts and reports a change of a sync.
    pub fn note_change(
        &mut self,
        entry: &CopyEntry<'_>,
        action: ChangeAction,
        source: &Stat,
        differs: AttributeDifferences,
    ) {
        if self.run.options.sync.is_none() {
            return;
        }
        self.tally.sync.count(action);
        if !self.run.options.verbose {
            return;
        }
        let is_directory = kind(source) == FileType::Directory;
        self.run.events.event(&Event::Sync(&SyncChange {
            path: &path_below(self.run.options, entry),
            action,
            kind: kind(source),
            is_linked: !is_directory && self.run.options.links_names(false, source.st_nlink),
            size: size(source),
            differs,
        }));
    }

    /// In a dry run, returns the outcome for one of several names of a source. `there`: the existing file, if it is
    /// equal to the source; `None` if this name will be a new file.
    pub fn foresee_name(&self, source: &Stat, there: Option<&Stat>) -> ForeseenName {
        self.shared.foresee(Id::of(source), there.map(Id::of))
    }
}

/// Returns the path of an entry below the destination of a sync.
pub(crate) fn path_below(options: &CopyOptions, entry: &CopyEntry<'_>) -> PathBuf {
    let has_entries = options.sync.is_some_and(|rules| rules.has_entries);
    if entry.named_by_caller() && !has_entries {
        return PathBuf::from(".");
    }
    let mut path = entry.directory.paths.path_inside(has_entries);
    path.push(os(entry.name));
    path
}

/// Reads the attributes that an open source has, and removes all others from its copy.
pub(crate) fn remove_other_xattrs(
    run: &CopyRun<'_>,
    sink: BorrowedFd<'_>,
    source: &SourceXattrs,
) -> Attempt<()> {
    let there = SourceXattrs::from(&Holder::Fd(sink), run.options.preserve);
    let there = there.map_err(|failure| match failure {
        CopyFailure::Source(call, errno) => CopyFailure::Sink(call, errno, 0),
        failure => failure,
    })?;
    source.remove_others(&there.settable_by(run.me.uid), &Holder::Fd(sink))
}

//! Compares existing entries with their sources, by the rules of a sync.

use rustix::fs::{FileType, Stat, fstatfs, readlinkat};
use std::os::fd::{AsFd, BorrowedFd};
use thalweg_sys::Errno;

use crate::{
    AttributeDifferences,
    copy::{copy_entry::CopyEntry, run::CopyRun},
    error::{Attempt, CopyFailure, at_sink},
    fs::special::NewEntry,
    identity::kind,
    times,
    xattrs::{Holder, SourceXattrs},
};

/// Returns the differences between two `stat` results, in attributes that are preserved and that this user may set.
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
        // If a copy cannot keep the owner, it drops the set-id bits. A difference in these bits then does not count.
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
        // Without /proc, the attributes of a name cannot be read. The name then counts as having none.
        Err(CopyFailure::Source(_, Errno::NOENT)) => Ok(SourceXattrs::default()),
        Err(failure) => Err(failure),
    };
    let [source, there] = holders;
    let (ours, theirs) = (read(source)?, read(there)?);
    (differs.acl, differs.xattrs) = ours.differs_from(&theirs);
    Ok(())
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
        let ours = Holder::Entry { dir: from.as_fd(), name: entry.source, follows };
        let theirs = Holder::Entry { dir, name: entry.name, follows: false };
        add_xattrs(run, [&ours, &theirs], &mut differs)?;
    }
    Ok(differs)
}

/// Returns the differences between a symbolic link or special file and the existing entry of its name.
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

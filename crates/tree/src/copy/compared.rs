//! Compares existing entries with their sources, by the rules of a sync.

use rustix::fs::{FileType, Stat, fstatfs, readlinkat};
use std::os::fd::{AsFd, BorrowedFd};

use crate::{
    AttributeDifferences,
    copy::{copy_entry::CopyEntry, run::CopyRun},
    error::{Attempt, at_sink},
    fs::special::NewEntry,
    holder::Holder,
    identity::kind,
    xattrs::EntryXattrs,
};

/// Returns the differences between two `stat` results, in attributes that are preserved and that this user may set.
pub(crate) fn of_stats(
    run: &CopyRun<'_>,
    dir: BorrowedFd<'_>,
    source: &Stat,
    there: &Stat,
) -> AttributeDifferences {
    let (keep, is_root) = (run.options.preserve, run.me.uid == 0);
    let all = AttributeDifferences::between(source, there, || fstatfs(dir));
    if all.kind {
        return AttributeDifferences { kind: true, ..AttributeDifferences::default() };
    }
    // If a copy cannot keep the owner, it drops the set-id bits. A difference in these bits then does not count.
    let drops_bits = keep.owner && (all.owner || all.group) && !is_root;
    let bits = if drops_bits { 0o777 } else { 0o7777 };
    AttributeDifferences {
        time: all.time && keep.times,
        mode: all.mode && keep.mode && (source.st_mode ^ there.st_mode) & bits != 0,
        owner: all.owner && keep.owner && is_root,
        group: all.group && keep.owner && run.me.may_give_to(source.st_gid),
        ..all
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
    let [ours, theirs] = holders.map(|holder| {
        let taken = EntryXattrs::compared(holder, run.options.preserve);
        taken.map(|taken| taken.settable_by(run.me.uid))
    });
    let (ours, theirs) = (ours?, theirs?);
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

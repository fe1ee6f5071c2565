//! The attributes of an entry without contents that was just created.

use rustix::fs::{FileType, Stat, fstat};
use std::{ffi::CStr, os::fd::AsFd};
use thalweg_sys::Errno;

use crate::{
    Becomes, Refusal,
    copy::{
        attributes::WantedAttributes,
        copy_entry::CopyEntry,
        name_at::{CopyPlacement, NameAt},
        worker::CopyWorker,
    },
    error::{Attempt, CopyFailure, at_sink, at_source},
    holder::{Holder, open_node},
    identity::kind,
    xattrs::EntryXattrs,
};

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
    if let Err(failure) = apply(worker, entry, stat, NameAt { dir, name }) {
        worker.incomplete(entry, failure);
    }
}

/// Opens the new entry and sets its attributes. Fails if another process replaced it.
fn apply(
    worker: &CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    stat: &Stat,
    NameAt { dir, name }: NameAt<'_>,
) -> Attempt<()> {
    let (keep, births) = (worker.run.options.preserve, entry.directory.births);
    let is_link = kind(stat) == FileType::Symlink;
    let mut wanted = WantedAttributes::of(keep, stat);
    wanted.has_owner = births.owner;
    // Symbolic links have neither mode nor ACL.
    wanted.born_with_acl = births.acl && !is_link;
    wanted.mode = wanted.mode.filter(|_| !is_link);
    let node;
    let holder = if is_link && entry.directory.is_staged {
        // No other user can enter a staging directory, so the name still leads to the link.
        Holder::Entry { dir, name, follows: false }
    } else {
        node = open_node(dir, name).map_err(at_sink("openat"))?;
        let own = fstat(&node).map_err(at_sink("fstat"))?;
        let is_made_by_us = kind(&own) == kind(stat)
            && own.st_rdev == stat.st_rdev
            && own.st_nlink <= 1
            && births.owner.is_none_or(|(uid, _)| uid == own.st_uid);
        if !is_made_by_us {
            return Err(CopyFailure::Refused(Refusal::Replaced));
        }
        wanted.has_owner = Some((own.st_uid, own.st_gid));
        wanted.has_mode = Some(own.st_mode & 0o7777);
        Holder::PathFd(node.as_fd())
    };
    let (xattrs, unread) = match source_xattrs(worker, entry) {
        Ok(xattrs) => (xattrs, Ok(())),
        Err(failure) => (EntryXattrs::default(), Err(failure)),
    };
    entry.apply_attributes(worker.run, holder, &xattrs, stat, &wanted).and(unread)
}

fn source_xattrs(worker: &CopyWorker<'_>, entry: &CopyEntry<'_>) -> Attempt<EntryXattrs> {
    let keep = worker.run.options.preserve;
    if !keep.looks_at_xattrs() {
        return Ok(EntryXattrs::default());
    }
    let source = open_node(entry.from.open()?, entry.source).map_err(at_source("openat"))?;
    match EntryXattrs::from(&Holder::PathFd(source.as_fd()), keep) {
        // Without /proc these attributes cannot be accessed; symbolic links and devices rarely have any.
        Err(CopyFailure::Source(_, Errno::NOENT)) if !keep.strict => Ok(EntryXattrs::default()),
        answer => answer,
    }
}

//! Gives files with several names in the source several names in the destination.

use rustix::fs::Stat;
use std::{
    ffi::{CStr, CString},
    os::fd::AsFd,
};
use thalweg_core::atomic_file::{name::unique, remove_leftover, rename, unlink};
use thalweg_sys::{Errno, io};

use crate::{
    CopyOptions, Event, Refusal, Skip,
    copy::{
        copy_entry::{CopyEntry, SourceDirectory},
        dest::{backup::set_aside, publish::ignore},
        links::{LinkClaim, Name, WaitingLink},
        name_at::{CopyPlacement, NameAt},
        task::CopyTask,
        worker::CopyWorker,
    },
    error::{Attempt, CopyFailure, at_sink, has_no_links},
    identity::{Id, mtime},
    queue::PackedNames,
};

/// The outcome for an existing name that the copy would skip.
pub(crate) enum LeftName {
    /// The name stays unchanged, and the other names of the source are linked to it. The caller must call
    /// `LinkTable::made` or `LinkTable::failed`.
    First,
    /// The name stays unchanged.
    Stays,
    /// The name is now a hard link to the copy of another name.
    Linked,
    /// Another worker is copying another name. This name is processed again afterwards.
    Waits,
}

/// The outcome of linking one name.
enum Linked {
    /// The name is now another name of the copy. Contains the name of the backup.
    Done(Option<CString>),
    /// Nothing may be replaced, and another process created the name first.
    Skipped,
    /// Another process replaced the copy, so its name leads to another file.
    Lost,
    /// Hard links are not supported here, or the file has too many of them.
    Refused(Errno),
}

/// The outcome for a second or later name of a file.
pub(crate) enum LinkOutcome {
    /// The name exists or was skipped.
    Done,
    /// Another process replaced the copy to link to, so another copy must be made.
    Lost,
    /// The name must become a separate copy.
    Refused,
}

/// Makes `entry` another name of the copy at `name`.
fn link(
    options: &CopyOptions,
    entry: &CopyEntry<'_>,
    CopyPlacement { dir, stat }: CopyPlacement<'_>,
    name: &Name,
) -> Attempt<Linked> {
    let there = match name.directory() {
        Err(CopyFailure::Sink(_, Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::STALE, _)) => {
            return Ok(Linked::Lost);
        }
        answer => answer?,
    };
    let is_copy = |new: &CStr| name.is_copy(dir, new);
    // In a visible directory, the link first gets a temporary name. It gets its final name after a check that it leads
    // to the copy.
    let is_hidden = entry.directory.is_fresh;
    if !is_hidden && is_copy(entry.name)? {
        return Ok(Linked::Done(None));
    }
    let new = if is_hidden { entry.name.to_owned() } else { unique(entry.name) };
    match io::link(there.as_fd(), &*name.last, dir, &*new) {
        Ok(()) => {}
        // If the copy still has its name, ENOENT means that hard links are not supported here.
        Err(errno @ Errno::NOENT) => {
            let is_there = name.is_copy(there.as_fd(), &name.last)?;
            return Ok(if is_there { Linked::Refused(errno) } else { Linked::Lost });
        }
        Err(Errno::EXIST) => return Err(CopyFailure::Refused(Refusal::JustCreated)),
        Err(errno) if has_no_links(errno) => return Ok(Linked::Refused(errno)),
        Err(errno) => return Err(CopyFailure::Sink("linkat", errno, 0)),
    }
    match is_copy(&new) {
        Ok(true) => {}
        answer => {
            unlink(dir, &new).map_err(at_sink("unlinkat"))?;
            return answer.map(|_| Linked::Lost);
        }
    }
    if is_hidden {
        return Ok(Linked::Done(None));
    }
    let name_at = NameAt { dir, name: entry.name };
    let linked = set_aside(options, name_at, entry, stat).and_then(|backup| {
        let renamed = rename(dir, &new, entry.name, options.replaces_nothing());
        renamed.map(|()| backup).map_err(at_sink("renameat2"))
    });
    // If both names refer to one file, rename does nothing and leaves both.
    ignore(unlink(dir, &new));
    match linked {
        Err(CopyFailure::Sink(_, Errno::EXIST, _)) if options.replaces_nothing() => {
            Ok(Linked::Skipped)
        }
        answer => answer.map(Linked::Done),
    }
}

/// Links a second or later name to a copy, and reports it.
pub(crate) fn link_name(
    worker: &mut CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    at: CopyPlacement<'_>,
    name: &Name,
) -> Attempt<LinkOutcome> {
    let linked = link(worker.run.options, entry, at, name);
    if linked.is_err() {
        worker.shared.links.claim_again(at.stat, name);
    }
    match linked? {
        Linked::Done(backup) => {
            if !entry.directory.is_fresh {
                // An earlier run may have left a partial file for this name.
                let _ = remove_leftover(at.dir, entry.name, Id::of(at.stat));
            }
            worker.tally.links += 1;
            worker.report_copied(entry, backup.as_deref());
        }
        Linked::Skipped => worker.skip(entry, Skip::Exists),
        Linked::Lost => {
            worker.shared.links.forget(at.stat, name);
            return Ok(LinkOutcome::Lost);
        }
        Linked::Refused(errno) => {
            worker.tally.unlinked += 1;
            let destination = &entry.destination_path();
            worker.run.events.event(&Event::NotLinked { destination, errno });
            return Ok(LinkOutcome::Refused);
        }
    }
    Ok(LinkOutcome::Done)
}

/// Processes an existing name that would be skipped. If another name of the source is copied, a link to that copy
/// replaces the existing name. A file that is newer than the source stays.
pub(crate) fn leave_name(
    worker: &mut CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    at: CopyPlacement<'_>,
    there: &Stat,
) -> Attempt<LeftName> {
    let CopyPlacement { dir, stat } = at;
    let is_newer = mtime(there) > mtime(stat);
    loop {
        match worker.shared.links.claim(entry, stat) {
            LinkClaim::First => return Ok(LeftName::First),
            LinkClaim::Waits => return Ok(LeftName::Waits),
            LinkClaim::Again(name) => {
                let is_link = name.is_copy(dir, entry.name);
                if is_link.is_err() {
                    worker.shared.links.claim_again(stat, &name);
                }
                if is_link? || is_newer {
                    return Ok(LeftName::Stays);
                }
                match link_name(worker, entry, at, &name)? {
                    LinkOutcome::Done => return Ok(LeftName::Linked),
                    LinkOutcome::Lost => {}
                    LinkOutcome::Refused => return Ok(LeftName::Stays),
                }
            }
        }
    }
}

/// Queues the names that waited for a copy. They are linked to the copy. If no copy exists, one name is copied.
pub(crate) fn wake_for(
    worker: &CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    stat: &Stat,
    copy: Attempt<Option<Id>>,
) -> Attempt<()> {
    requeue(
        worker,
        match &copy {
            Ok(Some(copy)) => worker.shared.links.made(entry, stat, *copy),
            _ => worker.shared.links.failed(stat),
        },
    );
    copy.map(drop)
}

/// Queues the names that waited for a copy.
pub(crate) fn requeue(worker: &CopyWorker<'_>, waiting: Vec<WaitingLink>) {
    for WaitingLink { directory, from, source, name } in waiting {
        worker.shared.queue.push(match from {
            SourceDirectory::Caller | SourceDirectory::Named(_) => {
                CopyTask::Named { directory, from, source, name }
            }
            SourceDirectory::Listed(_) => {
                let mut names = PackedNames::default();
                names.push(0, &name);
                CopyTask::Batch { directory, from, names }
            }
        });
    }
}

//! Gives files with several names in the source several names in the destination.

use rustix::fs::Stat;
use std::{ffi::CString, os::fd::AsFd};
use thalweg_core::atomic_file::{CallFailed, remove_leftover, unlink};
use thalweg_sys::Errno;

use crate::{
    CopyOptions, Event, Refusal, Skip,
    copy::{
        copy_entry::CopyEntry,
        dest::backup::set_aside,
        links::{LinkClaim, Name},
        name_at::{CopyPlacement, NameAt},
        task::CopyTask,
        worker::CopyWorker,
    },
    error::{Attempt, CopyFailure, at_sink, has_no_links},
    fs::special::{NewEntry, TemporaryEntry},
    identity::{Id, mtime},
};

/// The outcome for one name of a source with several names.
pub(crate) enum NameClaim {
    /// It is copied or kept. The caller then calls [`wake_for`], so that the other names are linked to it.
    First,
    /// It is copied or kept. The caller does nothing for the other names.
    Separate,
    /// It is now a hard link to the copy of another name, or it was skipped.
    Linked,
    /// It was a hard link to the copy of another name already, and is kept.
    Kept,
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
    // In a visible directory, the link first gets a temporary name. It gets its final name after a check that it leads
    // to the copy.
    let is_hidden = entry.directory.is_fresh;
    if !is_hidden && name.is_copy(dir, entry.name)? {
        return Ok(Linked::Done(None));
    }
    let new = NewEntry::hard_link(there.as_fd(), &name.last);
    let created = if is_hidden {
        match new.create(dir, entry.name) {
            Ok(false) => return Err(CopyFailure::Refused(Refusal::JustCreated)),
            answer => answer.map(|_| None),
        }
    } else {
        new.create_beside(dir, entry.name).map(Some)
    };
    let temporary = match created {
        Ok(temporary) => temporary,
        // If the copy still has its name, ENOENT means that hard links are not supported here.
        Err(CallFailed { errno: errno @ Errno::NOENT, .. }) => {
            let is_there = name.is_copy(there.as_fd(), &name.last)?;
            return Ok(if is_there { Linked::Refused(errno) } else { Linked::Lost });
        }
        Err(failed) if has_no_links(failed.errno) => return Ok(Linked::Refused(failed.errno)),
        Err(failed) => return Err(failed.into()),
    };
    let new_name = temporary.as_ref().map_or(entry.name, TemporaryEntry::name);
    match name.is_copy(dir, new_name) {
        Ok(true) => {}
        answer => {
            // Reports the error, which `drop` cannot.
            unlink(dir, new_name).map_err(at_sink("unlinkat"))?;
            return answer.map(|_| Linked::Lost);
        }
    }
    let Some(temporary) = temporary else { return Ok(Linked::Done(None)) };
    let backup = set_aside(options, NameAt { dir, name: entry.name }, entry, stat)?;
    match temporary.install(entry.name, options.replaces_nothing()) {
        Err(CallFailed { errno: Errno::EXIST, .. }) if options.replaces_nothing() => {
            Ok(Linked::Skipped)
        }
        answer => Ok(answer.map(|()| Linked::Done(backup))?),
    }
}

/// Claims a name of a source with several names. If another name is already copied, links this name to the copy.
/// `kept`: the existing entry of a name that is to be skipped. That entry stays if it already is a link to the copy, or if
/// it is newer than the source. A sync also replaces newer entries.
pub(crate) fn claim_name(
    worker: &mut CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    at: CopyPlacement<'_>,
    kept: Option<&Stat>,
) -> Attempt<NameClaim> {
    let CopyPlacement { dir, stat } = at;
    loop {
        let name = match worker.shared.links.claim(entry, stat) {
            LinkClaim::First => return Ok(NameClaim::First),
            LinkClaim::Waits => return Ok(NameClaim::Waits),
            LinkClaim::Again(name) => name,
        };
        if let Some(kept) = kept {
            let is_link = name.is_copy(dir, entry.name);
            if is_link.is_err() {
                worker.shared.links.claim_again(stat, &name);
            }
            if is_link? {
                return Ok(NameClaim::Kept);
            }
            if worker.run.options.sync.is_none() && mtime(kept) > mtime(stat) {
                return Ok(NameClaim::Separate);
            }
        }
        if let Some(claim) = link_name(worker, entry, at, &name)? {
            return Ok(claim);
        }
    }
}

/// Links a second or later name to a copy, and reports it. Returns `None` if another process replaced the copy, so that
/// another copy must be made.
fn link_name(
    worker: &mut CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    at: CopyPlacement<'_>,
    name: &Name,
) -> Attempt<Option<NameClaim>> {
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
            return Ok(None);
        }
        Linked::Refused(errno) => {
            worker.tally.unlinked += 1;
            let destination = &entry.destination_path();
            worker.run.events.event(&Event::NotLinked { destination, errno });
            return Ok(Some(NameClaim::Separate));
        }
    }
    Ok(Some(NameClaim::Linked))
}

/// Queues the names that waited for a copy. They are linked to the copy. If no copy exists, one name is copied.
pub(crate) fn wake_for(
    worker: &CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    stat: &Stat,
    copy: Attempt<Option<Id>>,
) -> Attempt<()> {
    let waiting = match &copy {
        Ok(Some(copy)) => worker.shared.links.made(entry, stat, *copy),
        _ => worker.shared.links.failed(stat),
    };
    for entry in waiting {
        worker.shared.queue.push(CopyTask::Named(entry));
    }
    copy.map(drop)
}

/// Expects a name again if its attempt failed for lack of descriptors: the retry claims the name a second time.
pub(crate) fn expect_retry(worker: &CopyWorker<'_>, stat: &Stat, failure: Option<&CopyFailure>) {
    if failure.is_some_and(CopyFailure::is_for_descriptors) {
        worker.shared.links.expect_again(stat);
    }
}

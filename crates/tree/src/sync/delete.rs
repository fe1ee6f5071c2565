//! Deletes the entries of the destination that the source does not have.

use rustix::fs::{AtFlags, CWD, FileType, Mode, Stat, fstat, futimens, openat, statat, unlinkat};
use std::{
    collections::HashMap,
    ffi::CStr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};
use thalweg_core::Cancelled;
use thalweg_sys::{Errno, io};

use super::{
    listing::{SourceListing, SourceNames},
    plan::{DeleteOptions, DeletePlan, DeletePlanner, DoomedEntry, PlannedId, below},
    refusal::DeleteRefusal,
    state,
};
use crate::{
    AttributeDifferences, ChangeAction, DirectoryCensus, Error, Event, Events, Halt, Refusal,
    SyncChange,
    copy::{attributes::times, name_at::NameAt},
    error::at_path,
    fs::{
        beneath::{Beneath, FollowLinks},
        list::{DIRECTORY, NAMED_DIRECTORY},
    },
    identity::kind,
    names::{STATE_FILE, os, os_bytes},
};

/// The result of the copy that ran before a deletion.
#[derive(Clone, Copy, Debug, Default)]
pub struct CopyOutcome {
    /// Entries that failed.
    pub errors: u64,
    /// Entries that were created.
    pub created: u64,
    /// The directories of the source that were listed; `None` if they were not counted.
    pub census: Option<DirectoryCensus>,
}

/// Result of a deletion.
#[derive(Debug, Default)]
pub struct DeleteReport {
    /// Entries that were deleted, or would be in a dry run.
    pub deleted: u64,
    /// The reason why nothing was deleted.
    pub refused: Option<DeleteRefusal>,
    /// Entries that could not be deleted.
    pub errors: Vec<Error>,
    /// The reason why the deletion ended early.
    pub halted: Option<Halt>,
}

impl DeleteReport {
    fn fail(&mut self, error: Error, events: &dyn Events) {
        events.event(&Event::Failed(&error));
        self.errors.push(error);
    }
}

/// Deletes the entries of `destination` that the source does not have. `outcome`: the result of the preceding copy.
pub fn delete_extra(
    destination: &Path,
    source: &dyn SourceNames,
    options: &DeleteOptions,
    outcome: &CopyOutcome,
    events: &dyn Events,
) -> Result<DeleteReport, Error> {
    let fd = match openat(CWD, destination, NAMED_DIRECTORY, Mode::empty()) {
        Err(Errno::NOENT) if options.dry_run => return Ok(DeleteReport::default()),
        opened => opened.map_err(at_path(destination, "openat"))?,
    };
    let beneath = Beneath::new(fd, FollowLinks::Never);
    let mut report = DeleteReport::default();
    let planner = DeletePlanner::new(&beneath, destination, source, options, events);
    let Ok(mut plan) = planner.plan() else {
        report.halted = Some(Halt::Cancelled);
        return Ok(report);
    };
    let identity = source.identity();
    let root = beneath.root().as_fd();
    if !options.force {
        let is_elsewhere = || match (state::recorded(root), &identity) {
            (Some(before), Some(now)) => before != *now,
            _ => false,
        };
        report.refused = refusal(&plan, options, outcome, is_elsewhere);
        if report.refused.is_some() {
            if options.dry_run && plan.list(events).is_err() {
                report.halted = Some(Halt::Cancelled);
            }
            return Ok(report);
        }
    }
    for error in plan.errors.drain(..).chain(plan.unlisted.drain(..)) {
        report.fail(error, events);
    }
    Deletion { beneath: &beneath, destination, options, events, plan: &plan, check: None }
        .perform(&mut report);
    if let Some(identity) = identity.filter(|_| !options.dry_run && report.halted.is_none())
        && let Err(failure) = state::record(root, &identity)
    {
        report.fail(failure.on(&destination.join(os(STATE_FILE))), events);
    }
    Ok(report)
}

/// Deletes the contents of a directory, except entries that `check` refuses. `shown` is the path of the directory, for
/// messages.
pub(super) fn remove_all(
    above: BorrowedFd<'_>,
    name: &CStr,
    shown: &Path,
    check: &RemovalCheck<'_>,
    events: &dyn Events,
) -> Result<DeleteReport, Error> {
    let fd = openat(above, name, DIRECTORY, Mode::empty());
    let fd = fd.map_err(at_path(shown, "openat"))?;
    let beneath = Beneath::new(fd, FollowLinks::Never);
    let options = DeleteOptions { excluded: true, force: true, ..DeleteOptions::default() };
    let mut report = DeleteReport::default();
    let planner = DeletePlanner::new(&beneath, shown, &NoNames, &options, events);
    let Ok(mut plan) = planner.plan() else {
        report.halted = Some(Halt::Cancelled);
        return Ok(report);
    };
    for error in plan.errors.drain(..) {
        report.fail(error, events);
    }
    let (plan, options, check) = (&plan, &options, Some(check));
    Deletion { beneath: &beneath, destination: shown, options, events, plan, check }
        .perform(&mut report);
    Ok(report)
}

/// A source without entries.
struct NoNames;

impl SourceNames for NoNames {
    fn list(&self, _directory: &[u8]) -> Result<SourceListing, Error> {
        Ok(SourceListing::default())
    }

    fn identity(&self) -> Option<String> {
        None
    }
}

/// Returns the first reason to delete nothing.
fn refusal(
    plan: &DeletePlan,
    options: &DeleteOptions,
    outcome: &CopyOutcome,
    is_elsewhere: impl FnOnce() -> bool,
) -> Option<DeleteRefusal> {
    let doomed = plan.doomed.len() as u64;
    if let Some(path) = &plan.contains_source {
        return Some(DeleteRefusal::ContainsSource(path.clone()));
    }
    if let Some(error) = plan.unlisted.first() {
        return Some(DeleteRefusal::Unlisted(error.to_string()));
    }
    if doomed == 0 {
        return None;
    }
    if plan.is_source_empty {
        return Some(DeleteRefusal::EmptySource);
    }
    if outcome.errors > 0 {
        return Some(DeleteRefusal::Failures(outcome.errors));
    }
    if outcome.census.is_some_and(|census| census != plan.census) {
        return Some(DeleteRefusal::Vanished);
    }
    if is_elsewhere() {
        return Some(DeleteRefusal::OtherDevice);
    }
    let created = if options.dry_run { 0 } else { outcome.created };
    let entries = plan.entries.saturating_sub(created);
    let half = if entries > FEW { entries / 2 } else { entries };
    let most = options.most.unwrap_or(half);
    (doomed > most).then_some(DeleteRefusal::TooMany { doomed, entries, most })
}

/// If a destination has at most this number of entries, all of them may be deleted.
const FEW: u64 = 100;

/// An entry that is to be removed.
pub(super) struct RemovalCandidate<'e> {
    /// The path below the directory.
    pub path: &'e [u8],
    pub at: NameAt<'e>,
    pub stat: &'e Stat,
}

/// Returns an error if an entry may not be removed.
pub(super) type RemovalCheck<'c> = dyn Fn(&RemovalCandidate<'_>) -> Result<(), Error> + 'c;

impl DeletePlan {
    /// Reports all entries to delete.
    fn list(&self, events: &dyn Events) -> Result<(), Cancelled> {
        for doomed in &self.doomed {
            events.go_on()?;
            self.report(doomed, events);
        }
        Ok(())
    }

    fn report(&self, doomed: &DoomedEntry, events: &dyn Events) {
        let path = below(&self.directories[doomed.parent].path, &doomed.name);
        events.event(&Event::Sync(&SyncChange {
            path: Path::new(os_bytes(&path)),
            action: ChangeAction::Delete,
            kind: doomed.kind,
            is_linked: false,
            size: 0,
            differs: AttributeDifferences::default(),
        }));
    }
}

/// Carries out a plan.
struct Deletion<'d> {
    beneath: &'d Beneath<OwnedFd>,
    destination: &'d Path,
    options: &'d DeleteOptions,
    events: &'d dyn Events,
    plan: &'d DeletePlan,
    /// The condition for each removal, if there is one.
    check: Option<&'d RemovalCheck<'d>>,
}

/// Attributes, before the deletion, of directories that exist on both sides, by the index of the directory in the plan.
type EarlierStats = HashMap<usize, Stat>;

impl Deletion<'_> {
    fn perform(&self, report: &mut DeleteReport) {
        let (mut opened, mut before) = (None, EarlierStats::new());
        for doomed in &self.plan.doomed {
            if self.events.go_on().is_err() {
                report.halted = Some(Halt::Cancelled);
                break;
            }
            let removed = self.remove(doomed, &mut opened, &mut before);
            match removed {
                Ok(true) => {
                    report.deleted += 1;
                    if self.check.is_none() {
                        self.plan.report(doomed, self.events);
                    }
                }
                // Another process has already removed the entry.
                Ok(false) => {}
                Err(error) => report.fail(error, self.events),
            }
        }
        drop(opened);
        // The times of the directories that stay are restored. The directories are synced if the options demand it.
        for (own, before) in &before {
            if let Err(error) = self.settle_directory(*own, before) {
                report.fail(error, self.events);
            }
        }
    }

    /// Removes one entry. Returns `false` if it does not exist any more.
    fn remove(
        &self,
        doomed: &DoomedEntry,
        opened: &mut Option<(usize, OwnedFd)>,
        before: &mut EarlierStats,
    ) -> Result<bool, Error> {
        if self.options.dry_run {
            return Ok(true);
        }
        if opened.as_ref().is_none_or(|(own, _)| *own != doomed.parent) {
            *opened = Some((doomed.parent, self.open(doomed.parent, before)?));
        }
        let Some((_, dir)) = opened else { return Ok(false) };
        let failed = |call| move |errno| at_path(&self.path_of(doomed), call)(errno);
        let there = match statat(&*dir, &*doomed.name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(false),
            answer => answer.map_err(failed("newfstatat"))?,
        };
        if there.st_ino != doomed.inode || kind(&there) != doomed.kind {
            return Err(Error::Refused { path: self.path_of(doomed), reason: Refusal::Replaced });
        }
        let path = below(&self.plan.directories[doomed.parent].path, &doomed.name);
        if let Some(check) = self.check {
            let at = NameAt { dir: dir.as_fd(), name: &doomed.name };
            check(&RemovalCandidate { path: &path, at, stat: &there })?;
        }
        let is_directory = doomed.kind == FileType::Directory;
        if let Some(kept) = self.options.kept.as_ref().filter(|_| !is_directory) {
            let moved = kept.take(dir.as_fd(), &doomed.name, Path::new(os_bytes(&path)));
            return moved.map(|()| true).map_err(|failure| failure.on(&self.path_of(doomed)));
        }
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        unlinkat(&*dir, &*doomed.name, flags).map_err(failed("unlinkat"))?;
        Ok(true)
    }

    /// Opens a directory of the plan, and checks that it is still the one that was listed.
    fn open(&self, own: usize, before: &mut EarlierStats) -> Result<OwnedFd, Error> {
        let planned = &self.plan.directories[own];
        let path = || self.destination.join(os_bytes(&planned.path));
        let failed = |call| move |errno| at_path(&path(), call)(errno);
        let fd = self.beneath.open(&planned.path, DIRECTORY).map_err(failed("openat2"))?;
        if PlannedId::of(&fd).map_err(failed("statx"))? != planned.id {
            return Err(Error::Refused { path: path(), reason: Refusal::Replaced });
        }
        if planned.is_common && !before.contains_key(&own) {
            before.insert(own, fstat(&fd).map_err(failed("fstat"))?);
        }
        Ok(fd)
    }

    fn settle_directory(&self, own: usize, before: &Stat) -> Result<(), Error> {
        let planned = &self.plan.directories[own];
        let path = || self.destination.join(os_bytes(&planned.path));
        let failed = |call| move |errno| at_path(&path(), call)(errno);
        let fd = self.beneath.open(&planned.path, DIRECTORY).map_err(failed("openat2"))?;
        if PlannedId::of(&fd).map_err(failed("statx"))? != planned.id {
            return Ok(());
        }
        futimens(&fd, &times(before)).map_err(failed("utimensat"))?;
        if self.options.fsync {
            io::sync(&fd).map_err(failed("fsync"))?;
        }
        Ok(())
    }

    fn path_of(&self, doomed: &DoomedEntry) -> std::path::PathBuf {
        let path = below(&self.plan.directories[doomed.parent].path, &doomed.name);
        self.destination.join(os_bytes(&path))
    }
}

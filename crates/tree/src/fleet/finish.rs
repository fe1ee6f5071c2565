//! Completes a tree after all its tasks are done. One worker does this. If it fails, another worker can start over.
//!
//! First every source file is checked: a file that changed since the survey is removed from the tree and reported.
//! Large files are published in the tree. Then an ordinary copy with `resume` skips the files that the tasks copied,
//! and copies everything else. Every file that this copy finds in the tree is complete, because a file gets its final
//! name only when it is complete.

use rustix::fs::{AtFlags, FileType, OFlags, Stat, fstat, futimens, openat, statat};
use std::{
    collections::HashSet,
    ffi::CStr,
    os::fd::AsFd,
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};
use thalweg_core::atomic_file::unlink;
use thalweg_sys::{Errno, io};

use super::{
    descent::Descent,
    existing::link_in,
    fleet_directory::{FINISHER, FleetDirectory, SYNC_FAILED},
    plan::{FleetPlan, FleetTask, PlanEntry, SourceStamp},
    task_runner::FleetPaths,
    watch::FleetWatch,
};
use crate::{
    CopyOptions, Error, Event, Events, Fsync, Halt, MOST_ERRORS, Target, TreeReport,
    copy::{attributes::times, run::Concurrency, start::copy_among, whole_sync::WholeSync},
    error::{Attempt, CopyFailure, at_path, at_sink},
    identity::{Id, kind, mtime, size},
    threads::{for_reading, locked, on_threads},
};

/// State shared by the threads that check the sources again and publish large files.
struct FinishCheck<'c> {
    grounds: FleetPaths<'c>,
    plan: &'c FleetPlan,
    place: &'c FleetDirectory,
    events: &'c FleetWatch<'c>,
    next: AtomicUsize,
    changed: AtomicU64,
    named: AtomicU64,
    // The large files that some thread has processed.
    seen: Mutex<HashSet<u64>>,
    errors: Mutex<Vec<Error>>,
}

/// The open paths of one thread.
struct ThreadPaths {
    source: Descent,
    tree: Descent,
    // The tree, without creating missing directories.
    there: Descent,
}

/// Completes and publishes the tree. Returns the report of this work, and the number of files of the tree.
pub(crate) fn finish(
    source: &Path,
    place: &FleetDirectory,
    plan: &FleetPlan,
    grounds: FleetPaths<'_>,
    options: &CopyOptions,
    events: &dyn Events,
) -> Result<(TreeReport, u64), Error> {
    let events = &FleetWatch::new(events, place.fd.as_fd(), FINISHER);
    let check = FinishCheck {
        grounds,
        plan,
        place,
        events,
        next: AtomicUsize::new(0),
        changed: AtomicU64::new(0),
        named: AtomicU64::new(0),
        seen: Mutex::default(),
        errors: Mutex::default(),
    };
    on_threads(for_reading(options.jobs), || check.work());
    let (changed, named) = (check.changed.into_inner(), check.named.into_inner());
    let large = locked(&check.seen).len() as u64;
    let mut errors = std::mem::take(&mut *locked(&check.errors));
    let options = CopyOptions { target: Target::Exact, resume: true, ..options.clone() };
    let (sources, tree) = ([source.to_owned()], grounds.tree_path.join("."));
    let mut report = copy_among(&sources[..], &tree, &options, events, Concurrency::Stragglers)?;
    if let Some(lost) = report.errors.iter().position(Error::loses_written_bytes)
        && options.fsync == Fsync::Always
    {
        let _ = place.flag(SYNC_FAILED);
        return Err(report.errors.swap_remove(lost));
    }
    // The copy counts the files of completed tasks as resumed or skipped. The workers have already reported these
    // files, so the counts are reset. The workers do not report large files, so `named` is added below.
    (report.resumed, report.continued, report.skipped) = (0, 0, 0);
    // `report.files` counts the files without a task, and those that were copied again after a task.
    let planned = plan.index.iter().map(|task| u64::from(task.files)).sum::<u64>() + large;
    let again = changed + report.verified.again;
    let files = (planned + report.files).saturating_sub(again);
    report.files += named;
    report.changed += changed;
    report.error_count += errors.len() as u64;
    errors.append(&mut report.errors);
    errors.truncate(MOST_ERRORS);
    report.errors = errors;
    if events.go_on().is_err() {
        report.halted.get_or_insert(Halt::Cancelled);
    }
    if report.halted.is_some() {
        return Ok((report, files));
    }
    if place.is_there {
        link_into_existing(place, &options, events, &mut report)?;
    } else {
        place.publish(options.fsync == Fsync::Always)?;
    }
    Ok((report, files))
}

/// Links the files of the tree into a destination that existed before.
fn link_into_existing(
    place: &FleetDirectory,
    options: &CopyOptions,
    events: &FleetWatch<'_>,
    report: &mut TreeReport,
) -> Result<(), Error> {
    // Links replace files. The sync ensures that each name has old or new contents after a power failure.
    if let Some(whole) = WholeSync::of(place.tree.as_fd()).filter(|_| options.fsync == Fsync::Auto)
    {
        whole.sync().map_err(|error| at_path(&place.path, error.call)(error.errno))?;
    }
    let linked = link_in(place, options, events)?;
    report.add_errors(linked.error_count, linked.errors);
    report.halted = linked.halted;
    Ok(())
}

impl FinishCheck<'_> {
    fn work(&self) {
        let ways = || {
            let (tree, there) = (self.grounds.down_tree(true)?, self.grounds.down_tree(false)?);
            Ok(ThreadPaths { source: self.grounds.down_source()?, tree, there })
        };
        let mut ways = match ways() {
            Ok(ways) => ways,
            Err(errno) => return self.report_error(at_path(&self.place.path, "openat")(errno)),
        };
        while self.events.go_on().is_ok() {
            let n = self.next.fetch_add(1, Ordering::Relaxed);
            if n >= self.plan.index.len() {
                return;
            }
            match self.plan.task(n) {
                Ok(FleetTask::Files(files)) => {
                    for entry in files {
                        self.file(&entry, &mut ways);
                    }
                }
                Ok(FleetTask::Stretch { file, entry, .. }) => {
                    let is_first = locked(&self.seen).insert(file);
                    if is_first {
                        self.large(file, &entry, &mut ways);
                    }
                }
                Err(error) => return self.report_error(self.place.no_plan(error)),
            }
        }
    }

    fn report_error(&self, error: Error) {
        self.events.event(&Event::Failed(&error));
        locked(&self.errors).push(error);
    }

    fn has_changed(&self, entry: &PlanEntry) {
        self.changed.fetch_add(1, Ordering::Relaxed);
        let source = &FleetPaths::path_of(self.grounds.source_path, entry);
        self.events.event(&Event::Changed { source });
    }

    fn file(&self, entry: &PlanEntry, ways: &mut ThreadPaths) {
        if let Ok(None) = look(entry, &mut ways.source) {
            self.has_changed(entry);
            // The file in the tree is a copy of the old source, so it is removed.
            let gone = remove(&mut ways.there, entry);
            self.expect(entry, gone);
        }
    }

    fn large(&self, file: u64, entry: &PlanEntry, ways: &mut ThreadPaths) {
        let done = match look(entry, &mut ways.source) {
            Ok(Some(stat)) => self.name(file, entry, &stat, &mut ways.tree),
            Ok(None) => {
                self.has_changed(entry);
                let forgotten = self.grounds.forget_part(file);
                // An earlier finisher may already have renamed the partial file to its final name.
                forgotten.map_err(at_sink("unlinkat")).and_then(|()| remove(&mut ways.there, entry))
            }
            Err(_) => Ok(()),
        };
        self.expect(entry, done);
    }

    fn expect(&self, entry: &PlanEntry, done: Attempt<()>) {
        if let Err(failure) = done {
            let path = FleetPaths::path_of(self.grounds.tree_path, entry);
            self.report_error(failure.on(&path));
        }
    }

    /// Publishes a complete large file. First sets the times, which mark the file as complete. The copy that follows
    /// sets all other attributes.
    fn name(&self, file: u64, entry: &PlanEntry, stat: &Stat, tree: &mut Descent) -> Attempt<()> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = self.grounds.part(file);
        let part = match openat(self.grounds.parts, &*name, flags, rustix::fs::Mode::empty()) {
            // The file was already renamed, has no data, or a journal was wrong. The later copy handles all of these.
            Err(Errno::NOENT) => return Ok(()),
            answer => answer.map_err(at_sink("openat"))?,
        };
        if size(&fstat(&part).map_err(at_sink("fstat"))?) != entry.seen.size {
            return self.grounds.forget_part(file).map_err(at_sink("unlinkat"));
        }
        futimens(&part, &times(stat)).map_err(at_sink("utimensat"))?;
        let folder = tree.folder(&entry.folder).map_err(at_sink("openat"))?;
        let folder = folder.open().map_err(at_sink("openat"))?;
        if let Ok(placed) = statat(&*folder, &*entry.name, AtFlags::SYMLINK_NOFOLLOW) {
            let part = fstat(&part).map_err(at_sink("fstat"))?;
            // Either another finisher has just renamed this partial file, or an earlier finisher renamed a first
            // partial file. In the second case, a slow worker has started this second partial file, which has holes.
            if Id::of(&placed) != Id::of(&part) {
                self.grounds.forget_part(file).map_err(at_sink("unlinkat"))?;
                if (size(&placed), mtime(&placed)) != (size(&part), mtime(&part)) {
                    // This removal makes the copy that follows copy the whole file.
                    unlink(folder.as_fd(), &entry.name).map_err(at_sink("unlinkat"))?;
                }
            }
            return Ok(());
        }
        match io::rename(self.grounds.parts, &*name, &*folder, &*entry.name, false) {
            Err(Errno::NOENT) => Ok(()),
            answer => {
                answer.map_err(at_sink("renameat2"))?;
                self.named.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        }
    }
}

/// Removes a file from the tree, if it exists.
fn remove(tree: &mut Descent, entry: &PlanEntry) -> Attempt<()> {
    let folder = match tree.folder(&entry.folder) {
        Err(Errno::NOENT) => return Ok(()),
        answer => answer.map_err(at_sink("openat"))?,
    };
    let folder = folder.open().map_err(at_sink("openat"))?;
    let name: &CStr = &entry.name;
    match unlink(folder.as_fd(), name) {
        Err(Errno::ISDIR | Errno::PERM) => Ok(()),
        answer => answer.map_err(|errno| CopyFailure::Sink("unlinkat", errno, 0)),
    }
}

/// Returns the current attributes of a source file; `None` if it changed since the survey. Other errors are returned,
/// and the copy that follows reports them.
fn look(entry: &PlanEntry, source: &mut Descent) -> Result<Option<Stat>, Errno> {
    let looked = source
        .folder(&entry.folder)
        .and_then(|folder| statat(&*folder.open()?, &*entry.name, AtFlags::SYMLINK_NOFOLLOW));
    match looked {
        Ok(stat) => {
            let is_same =
                kind(&stat) == FileType::RegularFile && SourceStamp::of(&stat) == entry.seen;
            Ok(is_same.then_some(stat))
        }
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(errno),
    }
}

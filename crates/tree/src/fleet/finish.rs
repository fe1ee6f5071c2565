//! Completes a tree of which every task is done. One worker does it, and another can begin it again.
//!
//! First every source is looked at: what is not as the survey saw it goes from the tree, and is told. Large files get
//! their names. Then an ordinary copy with `resume` goes through the tree: it finds what the tasks brought, and brings
//! all else. What it finds is whole, as in the tree no file has its name before it is.

use rustix::fs::{AtFlags, FileType, OFlags, Stat, fstat, futimens, openat, statat};
use std::{
    collections::HashSet,
    ffi::CStr,
    os::fd::AsFd,
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};
use thalweg_core::atomic_file::unlink;
use thalweg_sys::{Errno, io};

use super::{
    descent::Descent,
    existing::link_in,
    mover::{Grounds, error_of},
    place::{FINISHER, Place, SYNC_FAILED, failed},
    plan::{Entry, Plan, Seen, Task},
    watch::Watch,
};
use crate::{
    CopyOptions, Error, Event, Events, Fsync, Halt, MOST_ERRORS, Target, TreeReport,
    copy::{attributes::times, run::Concurrency, start::copy_among, whole_sync::WholeSync},
    error::{Attempt, Failure, at_sink},
    identity::{Id, kind, mtime, size},
    threads::{for_reading, on_threads},
};

/// Looks at the sources again, and gives large files their names.
struct Check<'c> {
    grounds: Grounds<'c>,
    plan: &'c Plan,
    place: &'c Place,
    events: &'c Watch<'c>,
    next: AtomicUsize,
    changed: AtomicU64,
    named: AtomicU64,
    // Large files that a thread has seen to.
    seen: Mutex<HashSet<u64>>,
    errors: Mutex<Vec<Error>>,
}

/// The ways of one thread.
struct Ways {
    source: Descent,
    tree: Descent,
    // The same without making what is missing.
    there: Descent,
}

/// Completes the tree and gives it its name; also how many files it has.
pub(crate) fn finish(
    (source, place, plan): (&Path, &Place, &Plan),
    grounds: Grounds<'_>,
    options: &CopyOptions,
    events: &dyn Events,
) -> Result<(TreeReport, u64), Error> {
    let events = &Watch::new(events, place.fd.as_fd(), FINISHER);
    let check = Check {
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
    let large = check.seen.into_inner().unwrap_or_else(PoisonError::into_inner).len() as u64;
    let mut errors = check.errors.into_inner().unwrap_or_else(PoisonError::into_inner);
    let options = CopyOptions { target: Target::Exact, resume: true, ..options.clone() };
    let (sources, tree) = ([source.to_owned()], grounds.tree_path.join("."));
    let mut report = copy_among((&sources[..], &*tree), &options, events, Concurrency::Stragglers)?;
    if let Some(lost) = report.errors.iter().position(Error::loses_written_bytes)
        && options.fsync == Fsync::Always
    {
        let _ = place.flag(SYNC_FAILED);
        return Err(report.errors.swap_remove(lost));
    }
    // What was there already is what the tasks brought: the workers have booked it, but for the names of large files.
    (report.resumed, report.skipped) = (0, 0);
    // Copied here is what no task had, and again what a task had and is not as it should be.
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

/// Gives the files of the tree their names in a destination that existed before.
fn link_into_existing(
    place: &Place,
    options: &CopyOptions,
    events: &Watch<'_>,
    report: &mut TreeReport,
) -> Result<(), Error> {
    // The files replace others: after a power cut each name has the old contents or the new.
    if let Some(whole) = WholeSync::of(place.tree.as_fd()).filter(|_| options.fsync == Fsync::Auto)
    {
        whole.sync().map_err(|error| failed(&place.path, error.call)(error.errno))?;
    }
    let linked = link_in(place, options, events)?;
    report.error_count += linked.error_count;
    report.errors.extend(linked.errors);
    report.errors.truncate(MOST_ERRORS);
    report.halted = linked.halted;
    Ok(())
}

impl Check<'_> {
    fn work(&self) {
        let ways = || {
            let (tree, there) = (self.grounds.down_tree(true)?, self.grounds.down_tree(false)?);
            Ok(Ways { source: self.grounds.down_source()?, tree, there })
        };
        let mut ways = match ways() {
            Ok(ways) => ways,
            Err(errno) => return self.tell(failed(&self.place.path, "openat")(errno)),
        };
        while self.events.go_on().is_ok() {
            let n = self.next.fetch_add(1, Ordering::Relaxed);
            if n >= self.plan.index.len() {
                return;
            }
            match self.plan.task(n) {
                Ok(Task::Files(files)) => {
                    for entry in files {
                        self.file(&entry, &mut ways);
                    }
                }
                Ok(Task::Stretch { file, entry, .. }) => {
                    let is_first =
                        self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(file);
                    if is_first {
                        self.large(file, &entry, &mut ways);
                    }
                }
                Err(error) => return self.tell(self.place.no_plan(error)),
            }
        }
    }

    fn tell(&self, error: Error) {
        self.events.event(&Event::Failed(&error));
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).push(error);
    }

    fn has_changed(&self, entry: &Entry) {
        self.changed.fetch_add(1, Ordering::Relaxed);
        let source = &Grounds::path_of(self.grounds.source_path, entry);
        self.events.event(&Event::Changed { source });
    }

    fn file(&self, entry: &Entry, ways: &mut Ways) {
        if let Ok(None) = look(entry, &mut ways.source) {
            self.has_changed(entry);
            // It is not what it should be, whatever it is.
            let gone = remove(&mut ways.there, entry);
            self.expect(entry, gone);
        }
    }

    fn large(&self, file: u64, entry: &Entry, ways: &mut Ways) {
        let done = match look(entry, &mut ways.source) {
            Ok(Some(stat)) => self.name(file, entry, &stat, &mut ways.tree),
            Ok(None) => {
                self.has_changed(entry);
                let forgotten = self.grounds.forget_part(file);
                // One that finished before may have given it its name.
                forgotten.map_err(at_sink("unlinkat")).and_then(|()| remove(&mut ways.there, entry))
            }
            Err(_) => Ok(()),
        };
        self.expect(entry, done);
    }

    fn expect(&self, entry: &Entry, done: Attempt<()>) {
        if let Err(failure) = done {
            self.tell(error_of((failure, Grounds::path_of(self.grounds.tree_path, entry))));
        }
    }

    /// Gives a large file, all stretches of which are there, the times by which it is known to be whole, and its name.
    /// The copy that follows gives it all else.
    fn name(&self, file: u64, entry: &Entry, stat: &Stat, tree: &mut Descent) -> Attempt<()> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = self.grounds.part(file);
        let part = match openat(self.grounds.parts, &*name, flags, rustix::fs::Mode::empty()) {
            // It has its name already, or holds nothing but a hole, or a journal lied: the copy finds out.
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
            // Another finisher has just renamed it; or an earlier one has, and a slow worker began a new part with holes.
            if Id::of(&placed) != Id::of(&part) {
                self.grounds.forget_part(file).map_err(at_sink("unlinkat"))?;
                if (size(&placed), mtime(&placed)) != (size(&part), mtime(&part)) {
                    // The copy that follows brings it whole.
                    unlink(folder.as_fd(), &entry.name).map_err(at_sink("unlinkat"))?;
                }
            }
            return Ok(());
        }
        match io::rename(self.grounds.parts, &*name, &*folder, &*entry.name, false) {
            Err(Errno::NOENT) => Ok(()),
            answer => {
                self.named.fetch_add(1, Ordering::Relaxed);
                answer.map_err(at_sink("renameat2"))
            }
        }
    }
}

/// Takes a file out of the tree, if it is there.
fn remove(tree: &mut Descent, entry: &Entry) -> Attempt<()> {
    let folder = match tree.folder(&entry.folder) {
        Err(Errno::NOENT) => return Ok(()),
        answer => answer.map_err(at_sink("openat"))?,
    };
    let folder = folder.open().map_err(at_sink("openat"))?;
    let name: &CStr = &entry.name;
    match unlink(folder.as_fd(), name) {
        Err(Errno::ISDIR | Errno::PERM) => Ok(()),
        answer => answer.map_err(|errno| Failure::Sink("unlinkat", errno, 0)),
    }
}

/// What the source is now; `None` if it is not what the survey saw. Where it cannot be looked at the copy will say so.
fn look(entry: &Entry, source: &mut Descent) -> Result<Option<Stat>, Errno> {
    let looked = source
        .folder(&entry.folder)
        .and_then(|folder| statat(&*folder.open()?, &*entry.name, AtFlags::SYMLINK_NOFOLLOW));
    match looked {
        Ok(stat) => {
            let is_same = kind(&stat) == FileType::RegularFile && Seen::of(&stat) == entry.seen;
            Ok(is_same.then_some(stat))
        }
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(errno),
    }
}

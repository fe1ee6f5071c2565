//! Runs one worker from its start to its end.

use rustix::{
    fs::{FileType, Mode, OFlags, fstat, lstat, open},
    process::{Resource, getrlimit},
};
use std::{
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};
use thalweg_core::cadence::{Deadline, RETRY_PAUSE};
use thalweg_sys::{Errno, io, usage, usage::Usage};

use super::{
    assignment::{Assignment, Pauses},
    existing::join,
    finish::finish,
    finisher::Finisher,
    fleet_directory::{
        EPOCH, FULL, FleetDirectory, FleetTarget, FoundFleet, LINKED, PLAN, SYNC_FAILED,
    },
    journals::{JournalWriter, Journals, REPORT, report},
    member::{Duty, Member},
    plan::{FleetPlan, Surveyed},
    published::sync_name,
    record::{WorkerName, WorkerRecord},
    task_runner::FleetPaths,
};
use crate::{
    Backup, Becomes, CopyOptions, Dereference, Error, Event, Events, Fsync, Halt, Refusal, Target,
    TreeReport, Update,
    copy::run::share,
    error::{at_path, cannot_take_more},
    fs::{cached::DirectoryCache, list::NAMED_DIRECTORY},
    identity::kind,
    threads::or_processors,
};

/// Maximum time to wait for other workers to stop when all tasks are done. A worker needs it for a few steps.
const PATIENCE: Duration = Duration::from_secs(3);
/// Maximum time for which a file system may show outdated attributes.
const BELIEVED: Duration = Duration::from_secs(10);

/// The outcome of a worker's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FleetEnd {
    /// The worker has finished and published the tree.
    Finished,
    /// No work was left for this worker: another worker finishes or has finished the tree.
    Others,
    /// When this worker started, the destination was already a complete copy of the source.
    There,
    /// Work is left for a worker that is started later: see the report.
    Unfinished,
}

/// The report of a worker, and the state of the fleet.
#[derive(Debug)]
pub struct FleetReport {
    /// The report of its own work.
    pub tree: TreeReport,
    /// The outcome of its run.
    pub end: FleetEnd,
    /// The ID of the plan.
    pub plan: u64,
    /// Number of tasks in the plan.
    pub tasks: u64,
    /// Number of tasks that it completed.
    pub done: u64,
    /// Number of files of the tree, if it finished the tree.
    pub files: u64,
    /// The records of all workers, if it finished the tree.
    pub workers: Vec<WorkerRecord>,
    /// The fleet's directory, which is removed when the tree is finished.
    pub folder: PathBuf,
}

/// Works on the copy of one directory. All processes that call this function for these two paths cooperate, now or
/// later, on this or other machines. `options` must be those of `cp -a`. The destination must not exist, unless the
/// target is [`Target::Exact`].
pub fn work(
    source: &Path,
    destination: &Path,
    options: &CopyOptions,
    member: &Member,
    events: &dyn Events,
) -> Result<FleetReport, Error> {
    let began = Instant::now();
    let cpu = Usage::now_process();
    check(source, options)?;
    let mut report = FleetReport {
        tree: TreeReport::default(),
        end: FleetEnd::There,
        plan: 0,
        tasks: 0,
        done: 0,
        files: 0,
        workers: Vec::new(),
        folder: PathBuf::new(),
    };
    let found = if options.target == Target::Exact {
        join(source, destination, member, events)?
    } else {
        FleetDirectory::make(source, destination, member.how())?
    };
    if let FoundFleet::Nothing = found {
        let reason = Refusal::NoFleet;
        return Err(Error::Refused { path: destination.to_owned(), reason });
    }
    if matches!(found, FoundFleet::Published) && options.fsync == Fsync::Always {
        // The worker that published the tree may have been killed before it synced the name.
        sync_name(destination).map_err(|error| at_path(destination, error.call)(error.errno))?;
    }
    if let FoundFleet::Place(place) = found {
        let name = WorkerName::of_this(member.rank, member.began);
        report.folder.clone_from(&place.path);
        let worker = Assignment { source, place: &place, options, member, events, name };
        match worker.run(&mut report) {
            // Another worker published the tree and removed the fleet's directory, while this worker read it.
            Err(error) if error.errno() == Some(Errno::NOENT) && place.is_published(source) => {
                report.end = FleetEnd::Others;
            }
            // The file system of the destination may become full before this worker has created its journal.
            Err(error) if error.errno().is_some_and(cannot_take_more) => {
                let _ = place.flag(FULL);
                events.event(&Event::Failed(&error));
                report.tree.add_errors(1, vec![error]);
                (report.end, report.tree.halted) = (FleetEnd::Unfinished, Some(Halt::Full));
            }
            answer => answer?,
        }
    }
    if report.end == FleetEnd::Unfinished {
        report.tree.unfinished.push(report.folder.clone());
    }
    report.tree.seconds = began.elapsed().as_secs_f64();
    report.tree.cpu_seconds = Usage::now_process().since(&cpu).cpu().as_secs_f64();
    Ok(report)
}

/// Creates or opens the fleet's directory and returns its path. `None` if the destination is already complete.
pub fn begin(source: &Path, destination: &Path) -> Result<Option<PathBuf>, Error> {
    check(source, &CopyOptions::archive())?;
    Ok(match FleetDirectory::make(source, destination, FleetTarget::New)? {
        FoundFleet::Place(place) => Some(place.path),
        FoundFleet::Published | FoundFleet::Nothing => None,
    })
}

/// Checks that the options are those of `cp -a` for a whole directory, because the evidence that an existing file is
/// complete relies on them.
fn check(source: &Path, options: &CopyOptions) -> Result<(), Error> {
    let is_archive = options.recursive
        && options.dereference == Some(Dereference::Never)
        && options.preserve.times
        && options.becomes == Becomes::Copy;
    let changes_what_is_there = options.update != Update::All
        || options.no_clobber
        || options.interactive
        || options.backup != Backup::None
        || options.inplace;
    let is_part = options.filter.is_some() || options.keeps_paths() || options.attributes_only;
    if !is_archive || changes_what_is_there || is_part || options.dry_run || options.list.is_some()
    {
        let why = "a sharded copy works only with -a, and not with options that select, keep or \
                   back up files";
        return Err(Error::Usage(why.to_owned()));
    }
    let stat = lstat(source).map_err(at_path(source, "lstat"))?;
    if kind(&stat) != FileType::Directory {
        let why =
            format!("'{}' is not a directory; a sharded copy copies a directory", source.display());
        return Err(Error::Usage(why));
    }
    Ok(())
}

impl Assignment<'_> {
    fn run(&self, report: &mut FleetReport) -> Result<(), Error> {
        let place = self.place;
        let Some(plan) = self.plan()? else {
            let is_there = place.is_published(self.source);
            report.end = if is_there { FleetEnd::Others } else { FleetEnd::Unfinished };
            report.tree.halted = (!is_there).then_some(Halt::Cancelled);
            // This worker had created the directory again, after another worker had removed it.
            return if is_there { place.remove() } else { Ok(()) };
        };
        (report.plan, report.tasks) = (plan.id, plan.index.len() as u64);
        self.expect_own_plan(&plan)?;
        let source = open(self.source, NAMED_DIRECTORY, Mode::empty());
        let source = source.map_err(at_path(self.source, "openat"))?;
        self.expect_surveyed(&plan, &source)?;
        report.end = FleetEnd::Unfinished;
        if self.member.makes() {
            // The flag is outdated, because a caller starts a worker only after it has freed space.
            place.take_away(FULL)?;
        }
        if self.member.duty == Duty::Plan {
            return place.flag(EPOCH);
        }
        let mut journals = Journals::new(plan.id, &plan.index);
        journals.refresh(place.fd.as_fd(), &plan.index).map_err(at_path(&place.path, "openat"))?;
        let limit = usage::raise_open_files().unwrap_or(getrlimit(Resource::Nofile).current);
        let (threads, most) = share(limit, or_processors(self.options.jobs));
        let (kept, tree_path) = (DirectoryCache::new(most), place.path.join("tree"));
        let grounds = FleetPaths {
            source: &source,
            tree: &place.tree,
            parts: &place.parts,
            plan: plan.id,
            source_path: self.source,
            tree_path: &tree_path,
            kept: &kept,
        };
        if self.member.moves() {
            self.take_part(&plan, &mut journals, grounds, threads, report)?;
        }
        if report.tree.halted.is_some() || place.has(SYNC_FAILED) {
            return Ok(());
        }
        self.complete(&plan, &mut journals, grounds, report)
    }

    /// Refuses a plan other than the one for which this worker was started.
    fn expect_own_plan(&self, plan: &FleetPlan) -> Result<(), Error> {
        match self.member.duty {
            Duty::Move { plan: expected, .. } if expected != plan.id => {
                let why = "the plan belongs to another sharded copy".to_owned();
                let path = self.place.path.join("plan");
                Err(Error::Refused { path, reason: Refusal::NoPlan(why) })
            }
            _ => Ok(()),
        }
    }

    /// Finishes the tree if all tasks are done and no other worker does it.
    fn complete(
        &self,
        plan: &FleetPlan,
        journals: &mut Journals,
        grounds: FleetPaths<'_>,
        report: &mut FleetReport,
    ) -> Result<(), Error> {
        let place = self.place;
        let looked = self.see_all_done(plan, journals);
        let is_gone = looked.is_err() || !place.has(PLAN);
        if is_gone && place.is_published(self.source) {
            report.end = FleetEnd::Others;
            return Ok(());
        }
        looked.map_err(at_path(&place.path, "openat"))?;
        if !journals.are_all_done(&plan.index) {
            return Ok(());
        }
        report.end = FleetEnd::Others;
        if let Duty::Move { .. } = self.member.duty {
            return Ok(());
        }
        let Some(finisher) = Finisher::claim(place, &self.name, self.events)? else {
            if self.events.go_on().is_err() {
                // The worker was cancelled while it waited for a sign of life of the other finisher.
                (report.end, report.tree.halted) = (FleetEnd::Unfinished, Some(Halt::Cancelled));
            }
            return Ok(());
        };
        // Workers that still move data stop when this file is missing.
        place.take_away(EPOCH)?;
        self.wait_for_others(plan, journals);
        self.finish(plan, journals, grounds, report, &finisher)
    }

    /// Performs tasks, and records them in its own journal and report.
    fn take_part(
        &self,
        plan: &FleetPlan,
        journals: &mut Journals,
        grounds: FleetPaths<'_>,
        threads: usize,
        report: &mut FleetReport,
    ) -> Result<(), Error> {
        let folder = self.place.fd.as_fd();
        let before = self.member.began.and_then(|_| self::report(folder, &self.name));
        let is_synced = self.options.fsync == Fsync::Always;
        let own = JournalWriter::begin(folder, &self.name, plan.id, before.as_ref(), is_synced);
        let own = own.map_err(at_path(&self.place.path, "openat"))?;
        if !journals.are_all_done(&plan.index) {
            let tree = &mut report.tree;
            report.done = self.move_tasks(plan, journals, &own, grounds, threads, tree)?;
        }
        let said = WorkerRecord::of(&self.name, report.done, own.seconds(), &report.tree);
        self.say(&match before {
            Some(before) => before.and(said),
            None => said,
        });
        Ok(())
    }

    /// Reads the journals. Another worker removes the `epoch` file after it has seen that all tasks are recorded. If
    /// the file is missing, this worker reads the journals for a limited time until it sees all tasks too, because the
    /// file system may cache the sizes of the journals.
    fn see_all_done(&self, plan: &FleetPlan, journals: &mut Journals) -> Result<(), Errno> {
        let (deadline, place) = (Deadline::after(BELIEVED), self.place);
        let mut pauses = Pauses::new();
        loop {
            journals.refresh(place.fd.as_fd(), &plan.index)?;
            let is_over = !place.has(EPOCH) && place.has(PLAN);
            let waits = is_over && self.member.duty == Duty::All && !deadline.passed();
            if journals.are_all_done(&plan.index) || !waits || self.events.go_on().is_err() {
                return Ok(());
            }
            pauses.next();
        }
    }

    /// Gives the other workers some time to stop. Files that they are still writing already exist in the tree, but the
    /// writes change the times of their directories. After that time the remaining workers are ignored, because they
    /// may hang.
    fn wait_for_others(&self, plan: &FleetPlan, journals: &mut Journals) {
        let (deadline, folder) = (Deadline::after(PATIENCE), self.place.fd.as_fd());
        while !deadline.passed() && self.events.go_on().is_ok() {
            // If the journals cannot be read now, only the workers known so far are considered.
            let _ = journals.refresh(folder, &plan.index);
            if journals.at_work(folder, &self.name) == 0 {
                return;
            }
            thread::sleep(RETRY_PAUSE);
        }
    }

    fn finish(
        &self,
        plan: &FleetPlan,
        journals: &Journals,
        grounds: FleetPaths<'_>,
        report: &mut FleetReport,
        finisher: &Finisher<'_>,
    ) -> Result<(), Error> {
        let place = self.place;
        let finished = match finish(self.source, place, plan, grounds, self.options, finisher) {
            // Another worker considered this one dead and published the tree first.
            Err(error) if !error.loses_written_bytes() && place.is_published(self.source) => {
                return Ok(());
            }
            answer => answer?,
        };
        let (finished, files) = finished;
        let is_published = finished.halted.is_none();
        report.tree.join(finished);
        if !is_published {
            if self.events.go_on().is_err() || !place.is_published(self.source) {
                report.end = FleetEnd::Unfinished;
            } else {
                report.tree.halted = None;
            }
            return Ok(());
        }
        if place.is_there && !place.has(LINKED) {
            report.end = FleetEnd::Unfinished;
            return Ok(());
        }
        (report.end, report.files) = (FleetEnd::Finished, files);
        report.workers = journals.workers(place.fd.as_fd());
        if let Err(error) = place.remove() {
            self.events.event(&Event::Incomplete(&error));
            report.tree.add_errors(1, vec![error]);
        }
        Ok(())
    }

    /// Refuses a directory other than the surveyed one. The source may be unmounted, or covered by another mount.
    fn expect_surveyed(&self, plan: &FleetPlan, source: &OwnedFd) -> Result<(), Error> {
        let top = fstat(source).map_err(at_path(self.source, "fstat"))?;
        if plan.of.may_be(Surveyed::of(&top)) {
            return Ok(());
        }
        Err(Error::Usage(format!(
            "'{}' is not the directory that the plan in '{}' describes; check that it is mounted",
            self.source.display(),
            self.place.path.display()
        )))
    }

    /// Writes the report for the finisher and for observers. If this fails, they only know less about this worker.
    fn say(&self, record: &WorkerRecord) {
        let text = serde_json::to_vec(record).unwrap_or_default();
        if let Ok(file) = self.place.create(&self.name.file(REPORT), OFlags::WRONLY) {
            let _ = io::write(&file, &text);
        }
    }
}

//! One worker, from its beginning to its end.

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
use thalweg_sys::{Errno, io, usage, usage::Usage};

use super::{
    assignment::{Assignment, LOOK, Pauses},
    existing::join,
    finish::finish,
    finisher::Finisher,
    journals::{Journals, Own, REPORT, report},
    member::{Duty, Member},
    mover::Grounds,
    place::{self, EPOCH, FULL, Found, How, LINKED, PLAN, Place, SYNC_FAILED, failed},
    plan::{Plan, Surveyed},
    record::{WorkerName, WorkerRecord},
};
use crate::{
    Backup, Becomes, CopyOptions, Dereference, Error, Event, Events, Fsync, Halt, Refusal, Target,
    TreeReport, Update, copy::run::share, error::cannot_take_more, folder::Kept, identity::kind,
    threads::or_processors,
};

/// How long the others may take to stop when all is done: some steps of theirs.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a file system may show what was there before.
const BELIEVED: Duration = Duration::from_secs(10);

/// How a worker's part ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FleetEnd {
    /// It has finished the tree, which has its name.
    Finished,
    /// Nothing was left for it: another finishes, or has finished.
    Others,
    /// The destination was there when it began, with the time of the source.
    There,
    /// Something is left, for a worker that is started again: see the report.
    Unfinished,
}

/// What a worker did, and what became of the whole.
#[derive(Debug)]
pub struct FleetReport {
    /// Its own account.
    pub tree: TreeReport,
    /// How it ended.
    pub end: FleetEnd,
    /// The number of the plan.
    pub plan: u64,
    /// Tasks in the plan.
    pub tasks: u64,
    /// Tasks that it did.
    pub done: u64,
    /// Files of the tree, if it finished.
    pub files: u64,
    /// All workers, if it finished.
    pub workers: Vec<WorkerRecord>,
    /// The folder of the fleet, which is gone when the tree is finished.
    pub folder: PathBuf,
}

/// Works on the copy of one folder, together with whoever else calls this for the same two folders, now or later, here
/// or on other machines. `options` are those of `cp -a`; the destination must not be there.
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
        join((source, destination), member, events)?
    } else {
        Place::make(source, destination, member.how())?
    };
    if let Found::Nothing = found {
        let reason = Refusal::NoFleet;
        return Err(Error::Refused { path: destination.to_owned(), reason });
    }
    if matches!(found, Found::Published) && options.fsync == Fsync::Always {
        // Who published it may have been killed before it did this.
        place::sync_name(destination)?;
    }
    if let Found::Place(place) = found {
        let name = WorkerName::of_this(member.rank, member.began);
        report.folder.clone_from(&place.path);
        let worker = Assignment { source, place: &place, options, member, events, name };
        match worker.run(&mut report) {
            // The folder was removed while it was looked at.
            Err(error) if error.errno() == Some(Errno::NOENT) && place.is_published(source) => {
                report.end = FleetEnd::Others;
            }
            // Another worker can fill the destination before this one has created its journal.
            Err(error) if error.errno().is_some_and(cannot_take_more) => {
                let _ = place.flag(FULL);
                events.event(&Event::Failed(&error));
                report.tree.errors.push(error);
                report.tree.error_count += 1;
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

/// Makes the folder of a fleet, or finds it, and says where it is; `None` if the destination is there, with the time of the
/// source.
pub fn begin(source: &Path, destination: &Path) -> Result<Option<PathBuf>, Error> {
    check(source, &CopyOptions::archive())?;
    Ok(match Place::make(source, destination, How::New)? {
        Found::Place(place) => Some(place.path),
        Found::Published | Found::Nothing => None,
    })
}

/// A fleet copies whole folders as `cp -a` does: what a file's being there already says rests on that.
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
        let why = "a fleet copies a whole folder as -a does, into a new one";
        return Err(Error::Usage(why.to_owned()));
    }
    let stat = lstat(source).map_err(failed(source, "lstat"))?;
    if kind(&stat) != FileType::Directory {
        let why = format!("'{}' is no folder: a fleet copies one", source.display());
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
            // It was gone when this worker made it anew.
            return if is_there { place.remove() } else { Ok(()) };
        };
        (report.plan, report.tasks) = (plan.id, plan.index.len() as u64);
        if let Duty::Move { plan: told, .. } = self.member.duty
            && told != plan.id
        {
            let why = "it is of another fleet than this worker was told".to_owned();
            return Err(Error::Refused {
                path: place.path.join("plan"),
                reason: Refusal::NoPlan(why),
            });
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let source = open(self.source, flags, Mode::empty());
        let source = source.map_err(failed(self.source, "openat"))?;
        self.expect_surveyed(&plan, &source)?;
        report.end = FleetEnd::Unfinished;
        if self.member.makes() {
            // Who starts a worker has made room.
            place.take_away(FULL)?;
        }
        if self.member.duty == Duty::Plan {
            return place.flag(EPOCH);
        }
        let mut journals = Journals::new(plan.id, &plan.index);
        journals.refresh(place.fd.as_fd(), &plan.index).map_err(failed(&place.path, "openat"))?;
        let limit = usage::raise_open_files().unwrap_or(getrlimit(Resource::Nofile).current);
        let (threads, most) = share(limit, or_processors(self.options.jobs));
        let (kept, tree_path) = (Kept::new(most), place.path.join("tree"));
        let grounds = Grounds {
            source: &source,
            tree: &place.tree,
            parts: &place.parts,
            plan: plan.id,
            source_path: self.source,
            tree_path: &tree_path,
            kept: &kept,
        };
        if self.member.moves() {
            self.take_part(&plan, &mut journals, (grounds, threads), report)?;
        }
        if report.tree.halted.is_some() || place.has(SYNC_FAILED) {
            return Ok(());
        }
        let looked = self.see_all_done(&plan, &mut journals);
        let is_gone = looked.is_err() || !place.has(PLAN);
        if is_gone && place.is_published(self.source) {
            report.end = FleetEnd::Others;
            return Ok(());
        }
        looked.map_err(failed(&place.path, "openat"))?;
        if !journals.are_all_done(&plan.index) {
            return Ok(());
        }
        report.end = FleetEnd::Others;
        if let Duty::Move { .. } = self.member.duty {
            return Ok(());
        }
        let Some(finisher) = Finisher::claim(place, &self.name, self.events)? else {
            if self.events.go_on().is_err() {
                // It did not learn whether the other one lives.
                (report.end, report.tree.halted) = (FleetEnd::Unfinished, Some(Halt::Cancelled));
            }
            return Ok(());
        };
        // Whoever still moves something stops.
        place.take_away(EPOCH)?;
        self.wait_for_others(&plan, &mut journals);
        self.finish(&plan, &journals, grounds, (report, &finisher))
    }

    /// Does tasks, and says so in a journal and a report of its own.
    fn take_part(
        &self,
        plan: &Plan,
        journals: &mut Journals,
        (grounds, threads): (Grounds<'_>, usize),
        report: &mut FleetReport,
    ) -> Result<(), Error> {
        let folder = self.place.fd.as_fd();
        let before = self.member.began.and_then(|_| self::report(folder, &self.name));
        let is_synced = self.options.fsync == Fsync::Always;
        let own = Own::begin(folder, &self.name, plan.id, (before.as_ref(), is_synced));
        let own = own.map_err(failed(&self.place.path, "openat"))?;
        if !journals.are_all_done(&plan.index) {
            let (told, tree) = ((journals, &own), &mut report.tree);
            report.done = self.move_tasks(plan, told, (grounds, threads), tree)?;
        }
        let said = WorkerRecord::of(&self.name, report.done, own.seconds(), &report.tree);
        self.say(&match before {
            Some(before) => before.and(said),
            None => said,
        });
        Ok(())
    }

    /// Looks once more at what is noted. Who has taken the epoch away has seen everything noted; where attributes are
    /// believed for a while, that shows here later.
    fn see_all_done(&self, plan: &Plan, journals: &mut Journals) -> Result<(), Errno> {
        let (began, place) = (Instant::now(), self.place);
        let mut pauses = Pauses::new();
        loop {
            journals.refresh(place.fd.as_fd(), &plan.index)?;
            let is_over = !place.has(EPOCH) && place.has(PLAN);
            let waits = is_over && self.member.duty == Duty::All && began.elapsed() < BELIEVED;
            if journals.are_all_done(&plan.index) || !waits || self.events.go_on().is_err() {
                return Ok(());
            }
            pauses.next();
        }
    }

    /// Gives the others some time to stop: what they write is whole, but changes the times of its folder. One that
    /// stands still is not waited for longer.
    fn wait_for_others(&self, plan: &Plan, journals: &mut Journals) {
        let (began, folder) = (Instant::now(), self.place.fd.as_fd());
        while began.elapsed() < PATIENCE && self.events.go_on().is_ok() {
            // What cannot be read now says nothing against them.
            let _ = journals.refresh(folder, &plan.index);
            if journals.at_work(folder, &self.name) == 0 {
                return;
            }
            thread::sleep(LOOK / 10);
        }
    }

    fn finish(
        &self,
        plan: &Plan,
        journals: &Journals,
        grounds: Grounds<'_>,
        (report, finisher): (&mut FleetReport, &Finisher<'_>),
    ) -> Result<(), Error> {
        let place = self.place;
        let finished = match finish((self.source, place, plan), grounds, self.options, finisher) {
            // Another one took this for dead, and was faster.
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
            report.tree.errors.push(error);
            report.tree.error_count += 1;
        }
        Ok(())
    }

    /// Refuses another folder than was surveyed: something else is mounted there, or nothing.
    fn expect_surveyed(&self, plan: &Plan, source: &OwnedFd) -> Result<(), Error> {
        let top = fstat(source).map_err(failed(self.source, "fstat"))?;
        if plan.of.may_be(Surveyed::of(&top)) {
            return Ok(());
        }
        Err(Error::Usage(format!(
            "'{}' is another folder than the plan in '{}' is of",
            self.source.display(),
            self.place.path.display()
        )))
    }

    /// Leaves a word for who finishes, or looks. Without it less is known of this worker, and no more.
    fn say(&self, record: &WorkerRecord) {
        let text = serde_json::to_vec(record).unwrap_or_default();
        if let Ok(file) = self.place.create(&self.name.file(REPORT), OFlags::WRONLY) {
            let _ = io::write(&file, &text);
        }
    }
}

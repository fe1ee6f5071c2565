//! Runs the tasks of one worker: its threads take, perform and record them until none are left.

use std::{
    os::fd::AsFd,
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};
use thalweg_core::cadence::CANCEL_CHECK;
use thalweg_sys::Errno;

use super::{
    assignment::Assignment,
    fleet_directory::{EPOCH, FULL, FleetDirectory, SYNC_FAILED},
    journals::{JournalWriter, Journals},
    member::Duty,
    plan::FleetPlan,
    share::TaskShare,
    task_runner::{FleetPaths, TaskRunner},
    watch::{FleetStop, FleetWatch},
};
use crate::{
    CopyOptions, Error, Fsync, Halt, TreeReport,
    copy::{
        run::{Concurrency, CopyRun, Me},
        shared::CopyShared,
    },
    error::{CopyFailure, at_sink},
    threads::{locked, on_threads},
};

/// State shared by the threads of a worker.
struct SharedProgress {
    share: TaskShare,
    journals: Journals,
    looked: Instant,
}

impl Assignment<'_> {
    /// Performs tasks until none are left. Returns the number of completed tasks.
    pub fn move_tasks(
        &self,
        plan: &FleetPlan,
        journals: &mut Journals,
        own: &JournalWriter,
        grounds: FleetPaths<'_>,
        threads: usize,
        report: &mut TreeReport,
    ) -> Result<u64, Error> {
        let place = self.place;
        if self.member.makes() {
            place.flag(EPOCH)?;
        }
        let (until, begun) = match self.member.duty {
            Duty::Move { within, .. } => (Instant::now().checked_add(within), within.is_zero()),
            _ => (None, false),
        };
        let watch = FleetWatch::new(self.events, place.fd.as_fd(), EPOCH);
        // Files are not verified here: the finisher verifies them, if requested.
        let options = CopyOptions { resume: true, verify: None, ..self.options.clone() };
        let mut run = CopyRun::new(&options, &watch, Me::looking_at(&place.tree, &options));
        run.concurrency = Concurrency::Workers;
        let copy = CopyShared::new(run);
        // If the journals cannot be read now, some tasks are only done twice.
        let _ = journals.refresh(place.fd.as_fd(), &plan.index);
        let beside = journals.place_in_rank(place.fd.as_fd(), &self.name);
        let share = TaskShare::beside(&plan.index, self.member.rank, self.member.size, beside);
        let shared = SharedProgress { share, journals: journals.clone(), looked: Instant::now() };
        let moving = TaskLoop {
            place,
            plan,
            own,
            watch: &watch,
            copy: &copy,
            until,
            begun: AtomicBool::new(begun),
            shared: Mutex::new(shared),
            done: AtomicU64::new(0),
        };
        for tally in on_threads(threads, || moving.work(grounds)) {
            report.add(tally);
        }
        let TaskLoop { shared, done, .. } = moving;
        journals.clone_from(&locked(&shared).journals);
        copy.run.conclude(report);
        report.halted = match watch.stopped() {
            None => report.halted,
            Some(FleetStop::Over) => None,
            Some(FleetStop::Full) => Some(Halt::Full),
            Some(FleetStop::Cancelled) => Some(Halt::Cancelled),
        };
        Ok(done.into_inner())
    }
}

/// The state that all threads of a worker share.
struct TaskLoop<'m> {
    place: &'m FleetDirectory,
    plan: &'m FleetPlan,
    own: &'m JournalWriter,
    watch: &'m FleetWatch<'m>,
    copy: &'m CopyShared<'m>,
    // No task is started after this time, except for the first one. A worker therefore makes progress even with a short
    // time limit.
    until: Option<Instant>,
    begun: AtomicBool,
    shared: Mutex<SharedProgress>,
    done: AtomicU64,
}

impl<'m> TaskLoop<'m> {
    fn work(&self, grounds: FleetPaths<'m>) -> TreeReport {
        let run = &self.copy.run;
        let mut runner = match TaskRunner::new(grounds, self.copy) {
            Ok(runner) => runner,
            Err(errno) => {
                self.stop_for(at_sink("openat")(errno), &self.place.path);
                return TreeReport::default();
            }
        };
        while run.go_on().is_ok() {
            let Some(n) = self.next() else { break };
            let task = match self.plan.task(n) {
                Ok(task) => task,
                Err(why) => {
                    run.failed(self.place.no_plan(why));
                    break;
                }
            };
            let before = runner.worker.tally.bytes;
            let failure = match runner.perform(&task) {
                Ok(()) => {
                    let bytes = runner.worker.tally.bytes - before;
                    // A task that ends after a stop of the fleet must not be recorded. It is done again.
                    match self.watch.look().map(|()| self.note(n, bytes)) {
                        Ok(Ok(())) => continue,
                        Ok(Err(errno)) => (at_sink("write")(errno), self.place.path.clone()),
                        Err(_) => break,
                    }
                }
                Err((CopyFailure::Cancelled, _)) => break,
                Err(failure) => failure,
            };
            // If another worker removed the fleet's directory, the removal caused this failure, so it is not reported.
            if run.go_on().is_err() {
                break;
            }
            if run.options.fsync == Fsync::Always && failure.0.loses_written_bytes() {
                let _ = self.place.flag(SYNC_FAILED);
            }
            self.stop_for(failure.0, &failure.1);
        }
        runner.end()
    }

    /// Reports a failure. If the destination is full or read-only, stops all workers.
    fn stop_for(&self, failure: CopyFailure, path: &Path) {
        let is_full = failure.ends_the_run();
        self.copy.run.failed(failure.on(path));
        if is_full {
            let _ = self.place.flag(FULL);
            self.copy.run.halt(Halt::Full);
        }
    }

    /// Returns the next task, based on the last known progress of the other workers.
    fn next(&self) -> Option<usize> {
        let is_late = self.until.is_some_and(|until| Instant::now() >= until);
        if self.begun.swap(true, Ordering::Relaxed) && is_late {
            return None;
        }
        let mut shared = locked(&self.shared);
        // For its own tasks, the worker reads the journals only at intervals. Before it takes a task of another worker,
        // it checks whether that task is still open.
        if shared.share.helps() || shared.looked.elapsed() >= CANCEL_CHECK {
            // Ignores errors: without a journal of another worker, this worker only repeats tasks.
            let _ = shared.journals.refresh(self.place.fd.as_fd(), &self.plan.index);
            shared.looked = Instant::now();
        }
        let SharedProgress { share, journals, .. } = &mut *shared;
        share.next(&journals.done)
    }

    fn note(&self, n: usize, bytes: u64) -> Result<(), Errno> {
        self.own.note(n, bytes, self.plan.index[n].hash)?;
        locked(&self.shared).journals.done.add(n);
        self.done.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

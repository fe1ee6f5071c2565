//! Moves the bytes of one transfer down a plan's ladder of mechanisms.
//!
//! The engine is [`TransferRun`], one step of which never sleeps. [`Driver::run`] is the loop round
//! it: it waits, asks the watcher and keeps the pace, where an event loop does so by itself.

use std::{
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};

use thalweg_sys::{Errno, io, usage::Usage};

use crate::{Cancelled, Error, Plan, Side, Transfer, mechanisms::LAST_RESORT};

mod contest;
mod cost;
mod ends;
mod ladder;
mod pace;
mod report;
mod transfer_run;

pub use contest::{Look, Tried};
pub use pace::Pace;
pub use report::{Outcome, Report, Share, StepDown};
pub use transfer_run::{Step, TransferRun};

/// Looks at a transfer between its steps: a progress bar, a cancel button, a journal.
pub trait Watch {
    /// Called at least every few tens of milliseconds while bytes move, with the bytes in the sink.
    fn progress(&mut self, moved: u64) -> Result<(), Cancelled>;
}

/// Watches nothing.
impl Watch for () {
    fn progress(&mut self, _: u64) -> Result<(), Cancelled> {
        Ok(())
    }
}

impl<F: FnMut(u64) -> Result<(), Cancelled>> Watch for F {
    fn progress(&mut self, moved: u64) -> Result<(), Cancelled> {
        self(moved)
    }
}

/// Drives transfers; the settings are those of the person who asked, not of a mechanism.
#[derive(Clone, Debug, Default)]
pub struct Driver {
    /// Bytes per second not to exceed.
    pub limit: Option<u64>,
}

/// How long one call into a mechanism should take: short enough for a live bar and a quick Ctrl-C.
pub const STEP: Duration = Duration::from_millis(40);
/// How long a wait for a slow end lasts before the watcher is asked again.
const WAIT: Duration = Duration::from_millis(100);

impl Driver {
    /// Moves everything, or says in the outcome how far it came and why it stopped.
    pub fn run(&self, transfer: &mut Transfer<'_>, plan: &Plan, watch: &mut dyn Watch) -> Outcome {
        let started = Instant::now();
        let cpu = Usage::now_process();
        let mut outcome = self.run_untimed(transfer, plan, watch);
        outcome.report.wall = started.elapsed();
        outcome.report.cpu = Usage::now_process().since(&cpu).cpu();
        outcome
    }

    /// The same without the times in the report, for one of many small transfers.
    pub fn run_untimed(
        &self,
        transfer: &mut Transfer<'_>,
        plan: &Plan,
        watch: &mut dyn Watch,
    ) -> Outcome {
        Self::run_at(Pace::new(self.limit, STEP), transfer, plan, watch)
    }

    /// The same at a pace that others may keep too.
    pub fn run_at(
        pace: Pace,
        transfer: &mut Transfer<'_>,
        plan: &Plan,
        watch: &mut dyn Watch,
    ) -> Outcome {
        let mut run = TransferRun::down(transfer.reborrow(), plan);
        if pace.is_limited() {
            run.trust();
        }
        match step_through(pace, &mut run, watch) {
            Ok(()) | Err(Stop::Cancelled) => {}
            Err(Stop::Failed(error)) => run.fail(error),
        }
        run.end()
    }
}

/// Takes steps until the run is over.
fn step_through(
    mut pace: Pace,
    run: &mut TransferRun<'_>,
    watch: &mut dyn Watch,
) -> Result<(), Stop> {
    loop {
        let (before, began) = (run.bytes(), Instant::now());
        let step = run.advance(pace.budget());
        let bytes = run.bytes();
        if matches!(step, Step::Done | Step::Failed(_)) {
            return Ok(());
        }
        pace.moved(bytes - before, began.elapsed());
        watch.progress(bytes)?;
        pace.hold_back(bytes - before, || watch.progress(bytes))?;
        if let Step::Blocked(side) = step
            && let Some(fd) = run.descriptor(side)
        {
            wait(fd, side, || watch.progress(bytes))?;
        }
    }
}

/// Why a transfer ends before its source does.
pub(crate) enum Stop {
    Cancelled,
    Failed(Error),
}

impl From<Cancelled> for Stop {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

/// Waits until an end may go on, asking now and then whether it should.
pub(crate) fn wait(
    fd: BorrowedFd<'_>,
    side: Side,
    mut look: impl FnMut() -> Result<(), Cancelled>,
) -> Result<(), Stop> {
    loop {
        let ready = match side {
            Side::Source => io::wait_readable(fd, Some(WAIT)),
            _ => io::wait_writable(fd, Some(WAIT)),
        };
        look()?;
        match ready {
            Ok(true) => return Ok(()),
            Ok(false) | Err(Errno::INTR) => {}
            Err(errno) => {
                return Err(Stop::Failed(LAST_RESORT.info().error("poll", side, errno, 0)));
            }
        }
    }
}

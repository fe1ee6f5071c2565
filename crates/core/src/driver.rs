//! Moves the bytes of one transfer, and falls back from one mechanism of the plan to the next.
//!
//! The engine is [`TransferRun`]; its steps never sleep. [`Driver::run`] calls it in a loop, for callers without an
//! event loop. The loop waits for the endpoints, calls the watcher and limits the rate.

use std::{
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};

use thalweg_sys::{Errno, io, usage::Usage};

use crate::{
    Cancelled, Error, Plan, Side, Transfer, cadence::CANCEL_CHECK, mechanisms::LAST_RESORT,
};

mod contest;
mod cost;
mod ends;
mod ladder;
mod pace;
mod readahead;
mod report;
mod transfer_run;

pub use contest::{ContestResult, ContestTime};
pub use pace::StepPace;
pub use report::{Outcome, Report, Share, StepDown};
pub use transfer_run::{Step, TransferRun};

/// Observer of a transfer, called between its steps: a progress bar, a cancel button, a journal.
pub trait Watch {
    /// Receives the number of bytes in the sink, at least every few tens of milliseconds while
    /// bytes move.
    fn progress(&mut self, moved: u64) -> Result<(), Cancelled>;
}

/// A watcher that ignores all progress.
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

/// Drives transfers. Its settings come from the user, and apply to every mechanism.
#[derive(Clone, Debug, Default)]
pub struct Driver {
    /// The maximum rate, in bytes per second.
    pub limit: Option<u64>,
}

/// The target duration of one call into a mechanism: short enough for a live progress bar and a
/// quick Ctrl-C.
pub const STEP: Duration = Duration::from_millis(40);

impl Driver {
    /// Moves all bytes. The outcome reports the bytes moved and, on failure, the reason.
    pub fn run(&self, transfer: &mut Transfer<'_>, plan: &Plan, watch: &mut dyn Watch) -> Outcome {
        let started = Instant::now();
        let cpu = Usage::now_process();
        let mut outcome = self.run_untimed(transfer, plan, watch);
        outcome.report.wall = started.elapsed();
        outcome.report.cpu = Usage::now_process().since(&cpu).cpu();
        outcome
    }

    /// Like [`Self::run`], but measures no times for the report, which saves calls for small transfers.
    pub fn run_untimed(
        &self,
        transfer: &mut Transfer<'_>,
        plan: &Plan,
        watch: &mut dyn Watch,
    ) -> Outcome {
        Self::run_at(StepPace::new(self.limit, STEP), transfer, plan, watch)
    }

    /// Like [`Self::run_untimed`], at a pace that other transfers may share.
    pub fn run_at(
        pace: StepPace,
        transfer: &mut Transfer<'_>,
        plan: &Plan,
        watch: &mut dyn Watch,
    ) -> Outcome {
        let mut run = TransferRun::down(transfer.reborrow(), plan);
        run.read_ahead();
        if pace.is_limited() {
            run.trust();
        }
        match step_through(pace, &mut run, watch) {
            Ok(()) | Err(TransferStop::Cancelled) => {}
            Err(TransferStop::Failed(error)) => run.fail(error),
        }
        run.end()
    }
}

/// Takes steps until the transfer is complete or fails.
fn step_through(
    mut pace: StepPace,
    run: &mut TransferRun<'_>,
    watch: &mut dyn Watch,
) -> Result<(), TransferStop> {
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

/// The reason that a transfer ends before its source does.
pub(crate) enum TransferStop {
    Cancelled,
    Failed(Error),
}

impl From<Cancelled> for TransferStop {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

/// Waits until an endpoint is ready. Calls `look` at least every [`CANCEL_CHECK`], to notice a cancellation.
pub(crate) fn wait(
    fd: BorrowedFd<'_>,
    side: Side,
    mut look: impl FnMut() -> Result<(), Cancelled>,
) -> Result<(), TransferStop> {
    loop {
        let ready = match side {
            Side::Source => io::wait_readable(fd, Some(CANCEL_CHECK)),
            _ => io::wait_writable(fd, Some(CANCEL_CHECK)),
        };
        look()?;
        match ready {
            Ok(true) => return Ok(()),
            Ok(false) | Err(Errno::INTR) => {}
            Err(errno) => {
                return Err(TransferStop::Failed(LAST_RESORT.info().error("poll", side, errno, 0)));
            }
        }
    }
}

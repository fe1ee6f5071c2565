//! Runs the plan for one file and records which mechanisms moved its bytes.

use std::os::fd::BorrowedFd;
use thalweg_core::{Driver, StepDown, Transfer};

use crate::{
    copy::{
        plans::{contest::PlannedMethod, is_clone},
        worker::CopyWorker,
    },
    error::{Attempt, CopyFailure},
    journal::JournalKeeper,
};

/// Runs a plan with the driver. Records the bytes that each mechanism moved, and every fallback. Returns the number
/// of bytes moved.
pub(crate) fn run_plan(
    worker: &mut CopyWorker<'_>,
    transfer: &mut Transfer<'_>,
    planned: &PlannedMethod,
    from: u64,
    mut keeper: Option<&mut JournalKeeper<BorrowedFd<'_>>>,
) -> Attempt<u64> {
    let run = worker.run;
    let driver = Driver { limit: run.options.limit };
    let mut seen = 0;
    let mut watch = |moved: u64| {
        worker.moved(moved - seen);
        seen = moved;
        if let Some(keeper) = keeper.as_deref_mut() {
            keeper.note(from + moved);
        }
        worker.flush_progress_when_due();
        run.go_on()
    };
    let outcome = driver.run_untimed(transfer, &planned.plan, &mut watch);
    worker.moved(outcome.report.bytes - seen);
    for share in &outcome.report.shares {
        worker.tally.book(share.mechanism, &share.tuning, share.bytes);
        if is_clone(share.mechanism) {
            worker.tally.cloned += share.bytes;
        }
    }
    for step in outcome.report.steps_down {
        record_fallback(worker, step, planned);
    }
    worker.tally.looked(outcome.report.looks);
    if let Some(keeper) = keeper {
        keeper.note(from + outcome.report.bytes);
    }
    match outcome.error {
        Some(error) => Err(CopyFailure::Moved(error)),
        None if outcome.stopped => Err(CopyFailure::Cancelled),
        None => Ok(outcome.report.bytes),
    }
}

/// Records that the driver fell back from one mechanism to the next one of the plan.
pub(crate) fn record_fallback(
    worker: &mut CopyWorker<'_>,
    step: StepDown,
    planned: &PlannedMethod,
) {
    if let Some(pair) = &planned.pair {
        pair.learn(&step);
    }
    worker.shared.contests.left(&mut worker.known, step.from);
    worker.tally.step_down(step);
}

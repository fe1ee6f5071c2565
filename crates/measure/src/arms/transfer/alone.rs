//! Runs a single mechanism for arms (compared variants) and probes. Conditions in which the driver would fall back are
//! failures here.

use std::{os::fd::AsFd, time::Duration};
use thalweg_core::{
    End, Mechanism, Mover, Transfer, Tuning, Unfit,
    cadence::REACTION,
    exact::{Exactly, Inexact, run_exact},
};

use crate::{StopCheck, schedule::SampleFailure};

/// Returns an open file as an end, from its first byte if it is seekable.
pub fn end_of(file: &impl AsFd) -> Result<End<'_>, Unfit> {
    let end = End::from_start(file.as_fd());
    end.map_err(|e| Unfit::because(format!("cannot examine an endpoint: {e}")))
}

/// Moves `total` bytes with an opened mechanism, requesting all of them.
pub fn move_exactly(mover: &mut dyn Mover, total: u64) -> Result<(), Unfit> {
    let mut how = Exactly { paced: false, patience: REACTION, watch: &mut () };
    Ok(run_exact(mover, total, &mut how)?)
}

/// A mechanism with the tuning that it is opened with.
#[derive(Clone, Copy)]
pub struct TunedMechanism<'t> {
    pub mechanism: &'t dyn Mechanism,
    pub tuning: &'t Tuning,
}

/// Opens the mechanism, moves the whole length like the driver, calls `at_end` while the mechanism still holds its
/// resources, and closes it.
pub(super) fn move_all(
    tuned: TunedMechanism<'_>,
    transfer: Transfer<'_>,
    stop: &StopCheck<'_>,
    at_end: &mut dyn FnMut(),
) -> Result<u64, SampleFailure> {
    let total = transfer.len.unwrap_or(u64::MAX);
    let mut mover = tuned.mechanism.open(transfer, tuned.tuning).map_err(Unfit::from)?;
    let mut watch = |_| stop();
    let mut how = Exactly { paced: true, patience: Duration::MAX, watch: &mut watch };
    match run_exact(mover.as_mut(), total, &mut how) {
        Err(Inexact::Cancelled) => return Err(SampleFailure::Cancelled),
        moved => moved.map_err(Unfit::from)?,
    }
    at_end();
    Ok(total)
}

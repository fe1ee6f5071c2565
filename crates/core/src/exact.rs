//! Moves an exact number of bytes with one opened mechanism, for callers that test or measure that mechanism alone.
//! Unlike the driver, this module never falls back, and never verifies the end of the source with a read.

use std::time::{Duration, Instant};

use crate::{
    Cancelled, Error, Mover, Unfit, Watch,
    driver::{STEP, StepPace},
};

/// Settings for driving a mechanism.
pub struct Exactly<'w> {
    /// `true` if each call gets the budget that the driver would use, `false` if it gets all remaining bytes.
    pub paced: bool,
    /// The longest time without progress for which the mechanism may report that it would block.
    pub patience: Duration,
    /// Called after every step.
    pub watch: &'w mut dyn Watch,
}

/// The reason that not all bytes were moved.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub enum Inexact {
    #[error("cancelled")]
    Cancelled,
    #[error("unexpected end of the source after {moved} of {total} bytes")]
    Ended { moved: u64, total: u64 },
    /// A call failed. The error's `moved` counts from the start of the move.
    #[error("{}: {} after {} of {total} bytes", .error.call, .error.errno_name(), .error.moved)]
    Failed { error: Error, total: u64 },
}

impl From<Cancelled> for Inexact {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

impl From<Inexact> for Unfit {
    fn from(inexact: Inexact) -> Self {
        let errno = match inexact {
            Inexact::Failed { error, .. } => Some(error.errno),
            Inexact::Cancelled | Inexact::Ended { .. } => None,
        };
        Self { reason: inexact.to_string(), errno }
    }
}

/// Moves exactly `total` bytes.
pub fn run_exact(mover: &mut dyn Mover, total: u64, how: &mut Exactly<'_>) -> Result<(), Inexact> {
    let mut pace = how.paced.then(|| StepPace::new(None, STEP));
    let (mut moved, mut progress) = (0, Instant::now());
    while moved < total {
        let left = total - moved;
        let began = Instant::now();
        match mover.advance(pace.as_ref().map_or(left, |pace| pace.budget().min(left))) {
            Ok(0) => return Err(Inexact::Ended { moved, total }),
            Ok(count) => {
                moved += count;
                progress = Instant::now();
                if let Some(pace) = &mut pace {
                    pace.moved(count, progress - began);
                }
            }
            Err(error) if error.is_interruption() => moved += error.moved,
            Err(error) if error.is_would_block() && progress.elapsed() < how.patience => {
                moved += error.moved;
                // The mechanism may wait for a thread or a peer, so there is no descriptor to poll. Such a mechanism
                // has already waited inside its step. A short pause is therefore enough.
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => {
                let error = Error { moved: moved + error.moved, ..error };
                return Err(Inexact::Failed { error, total });
            }
        }
        how.watch.progress(moved)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Side;
    use thalweg_sys::Errno;

    /// A mover that returns these answers one after the other, then 0.
    struct Script(Vec<Result<u64, Error>>);

    impl Mover for Script {
        fn advance(&mut self, budget: u64) -> Result<u64, Error> {
            if self.0.is_empty() { Ok(0) } else { self.0.remove(0).map(|n| n.min(budget)) }
        }
    }

    fn run(script: Vec<Result<u64, Error>>, watch: &mut dyn Watch) -> Result<(), Unfit> {
        let mut how = Exactly { paced: true, patience: Duration::from_secs(60), watch };
        Ok(run_exact(&mut Script(script), 10, &mut how)?)
    }

    #[test]
    fn short_steps_interruptions_and_waits_continue_and_the_rest_is_reported() {
        let error = |errno| Error { mechanism: "m", call: "c", errno, side: Side::Sink, moved: 2 };
        let calm = vec![Ok(3), Err(error(Errno::INTR)), Err(error(Errno::AGAIN)), Ok(9)];
        assert_eq!(run(calm, &mut ()), Ok(()));
        let unfit = run(vec![Ok(3)], &mut ()).unwrap_err();
        assert!(unfit.reason.contains("end of the source after 3 of 10"), "{unfit}");
        let unfit = run(vec![Ok(3), Err(error(Errno::PIPE))], &mut ()).unwrap_err();
        assert_eq!(unfit.errno, Some(Errno::PIPE));
        assert!(unfit.reason.contains("after 5 of 10"), "{unfit}");
    }

    #[test]
    fn it_ends_on_request_and_after_the_deadline() {
        let mut steps = 0;
        let mut stop = |_| {
            steps += 1;
            if steps == 2 { Err(Cancelled) } else { Ok(()) }
        };
        assert_eq!(run(vec![Ok(1); 5], &mut stop).unwrap_err().reason, "cancelled");
        let again =
            Error { mechanism: "m", call: "c", errno: Errno::AGAIN, side: Side::Own, moved: 0 };
        let mut how = Exactly { paced: false, patience: Duration::ZERO, watch: &mut () };
        let failed = run_exact(&mut Script(vec![Err(again)]), 10, &mut how);
        assert!(matches!(failed, Err(Inexact::Failed { .. })), "{failed:?}");
    }
}

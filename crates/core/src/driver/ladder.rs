//! The mechanisms of one transfer in the order in which they are tried, the last resort at the end.

use super::StepDown;
use crate::{Error, Mechanism, Tuning, error::symbol, mechanisms::LAST_RESORT};

type Rung = (&'static dyn Mechanism, Tuning);

/// Where a transfer stands among the mechanisms of its plan.
pub(super) struct Ladder {
    rungs: Vec<Rung>,
    at: usize,
}

impl Ladder {
    pub fn new(plan: Vec<Rung>) -> Self {
        let mut rungs = plan;
        if rungs.last().is_none_or(|rung| name(rung) != LAST_RESORT.info().name) {
            rungs.push((LAST_RESORT, Tuning::default()));
        }
        Self { rungs, at: 0 }
    }

    pub fn rung(&self) -> (&'static dyn Mechanism, &Tuning) {
        let (mechanism, tuning) = &self.rungs[self.at];
        (*mechanism, tuning)
    }

    /// Takes out the mechanisms that wait inside a step; those that would have gone first are told.
    pub fn never_sleep(&mut self) -> Vec<StepDown> {
        let waits = |rung: &Rung| rung.0.info().nature.waits;
        // The last resort never does.
        let first = self.rungs.iter().position(|rung| waits(rung).is_none()).unwrap_or(0);
        let to = name(&self.rungs[first]);
        let told = self.rungs.drain(..first).map(|rung| {
            let reason = waits(&rung).unwrap_or_default().to_owned();
            StepDown { from: name(&rung), to, at: 0, call: "", errno: "", reason }
        });
        let told = told.collect();
        self.rungs.retain(|rung| waits(rung).is_none());
        told
    }

    /// Goes down, `at` bytes into the transfer; `None` if there is nothing below.
    ///
    /// A refusal goes one rung down. Any other errno goes to the last resort at once: one plain
    /// read and write of the same range either fails with the true errno on the true side, or works.
    pub fn step_down(&mut self, error: &Error, at: u64) -> Option<StepDown> {
        let last = self.rungs.len() - 1;
        if self.at == last || error.mechanism == LAST_RESORT.info().name {
            return None;
        }
        self.at = if error.is_refusal() { self.at + 1 } else { last };
        Some(StepDown {
            from: error.mechanism,
            to: name(&self.rungs[self.at]),
            at,
            call: error.call,
            errno: symbol(error.errno),
            reason: error.errno_name(),
        })
    }
}

fn name(rung: &Rung) -> &'static str {
    rung.0.info().name
}

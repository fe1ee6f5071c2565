//! How much one step may move: enough to be fast, little enough to stay in control.

use std::{sync::Arc, time::Duration};

use crate::{Cancelled, rate_limit::RateLimit};

/// Adapts the budget of a step to the time a step should take, and keeps the limits there are.
#[derive(Debug)]
pub struct Pace {
    limits: Vec<Arc<RateLimit>>,
    step: Duration,
    budget: u64,
}

// Budgets are whole multiples of this, so that clones and O_DIRECT see aligned ranges.
const GRAIN: u64 = 1 << 20;
const LARGEST: u64 = 1 << 30;

impl Pace {
    /// A pace for steps of about `step`, and no more than `limit` bytes per second if given.
    pub fn new(limit: Option<u64>, step: Duration) -> Self {
        let limit = limit.filter(|limit| *limit > 0).map(|limit| Arc::new(RateLimit::new(limit)));
        Self::within(limit.into_iter().collect(), step)
    }

    /// The same within several limits, which others may keep too.
    pub fn within(limits: Vec<Arc<RateLimit>>, step: Duration) -> Self {
        Self { limits, step, budget: 4 * GRAIN }
    }

    /// Whether it holds anybody back.
    pub fn is_limited(&self) -> bool {
        !self.limits.is_empty()
    }

    /// Bytes the next step may move.
    pub fn budget(&self) -> u64 {
        self.limits.iter().fold(self.budget, |budget, limit| budget.min(limit.step()))
    }

    /// Learns from a step that moved `bytes` in `took`.
    pub fn moved(&mut self, bytes: u64, took: Duration) {
        if bytes < self.budget {
            return;
        }
        if took < self.step / 2 {
            self.budget = (self.budget * 2).min(LARGEST);
        } else if took > self.step * 2 {
            self.budget = (self.budget / 2 / GRAIN * GRAIN).max(GRAIN);
        }
    }

    /// Keeps the limits after a step that moved `bytes`.
    pub fn hold_back(
        &self,
        bytes: u64,
        mut go_on: impl FnMut() -> Result<(), Cancelled>,
    ) -> Result<(), Cancelled> {
        self.limits.iter().try_for_each(|limit| limit.keep(bytes, &mut go_on))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_steps_grow_and_slow_steps_shrink_in_whole_grains() {
        let mut pace = Pace::new(None, Duration::from_millis(40));
        let first = pace.budget();
        pace.moved(first, Duration::from_millis(1));
        assert_eq!(pace.budget(), first * 2);
        for _ in 0..20 {
            pace.moved(pace.budget(), Duration::from_secs(1));
        }
        assert_eq!(pace.budget(), GRAIN);
        assert_eq!(pace.budget() % GRAIN, 0);
    }

    #[test]
    fn a_step_cut_short_by_the_source_teaches_nothing() {
        let mut pace = Pace::new(None, Duration::from_millis(40));
        let first = pace.budget();
        pace.moved(1, Duration::from_nanos(1));
        assert_eq!(pace.budget(), first);
    }
}

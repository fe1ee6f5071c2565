//! How much one step may move: enough to be fast, little enough to stay in control.

use std::time::Duration;

use crate::{Cancelled, rate_limit::RateLimit};

/// Adapts the budget of a step to the time a step should take, and keeps a limit if there is one.
#[derive(Debug)]
pub struct Pace {
    limit: Option<RateLimit>,
    step: Duration,
    budget: u64,
}

// Budgets are whole multiples of this, so that clones and O_DIRECT see aligned ranges.
const GRAIN: u64 = 1 << 20;
const LARGEST: u64 = 1 << 30;

impl Pace {
    /// A pace for steps of about `step`, and no more than `limit` bytes per second if given.
    pub fn new(limit: Option<u64>, step: Duration) -> Self {
        let limit = limit.filter(|limit| *limit > 0).map(RateLimit::new);
        Self { limit, step, budget: 4 * GRAIN }
    }

    /// Bytes the next step may move.
    pub fn budget(&self) -> u64 {
        self.limit.as_ref().map_or(self.budget, |limit| self.budget.min(limit.step()))
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

    /// Keeps the limit after a step that moved `bytes`.
    pub fn hold_back(
        &self,
        bytes: u64,
        go_on: impl FnMut() -> Result<(), Cancelled>,
    ) -> Result<(), Cancelled> {
        self.limit.as_ref().map_or(Ok(()), |limit| limit.keep(bytes, go_on))
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

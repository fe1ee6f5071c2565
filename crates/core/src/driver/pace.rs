//! The number of bytes per step: large enough to be fast, small enough to stay responsive.

use std::{sync::Arc, time::Duration};

use crate::{Cancelled, rate_limit::RateLimit};

/// Adapts the budget of a step to the target duration of a step, and enforces rate limits.
#[derive(Debug)]
pub struct StepPace {
    limits: Vec<Arc<RateLimit>>,
    step: Duration,
    budget: u64,
}

// Budgets are multiples of this, so that clones and O_DIRECT get aligned ranges.
const GRAIN: u64 = 1 << 20;
const LARGEST: u64 = 1 << 30;

impl StepPace {
    /// Creates a pace for steps of about `step`, with at most `limit` bytes per second if given.
    pub fn new(limit: Option<u64>, step: Duration) -> Self {
        let limit = limit.filter(|limit| *limit > 0).map(|limit| Arc::new(RateLimit::new(limit)));
        Self::within(limit.into_iter().collect(), step)
    }

    /// Creates a pace under several rate limits, which other transfers may share.
    pub fn within(limits: Vec<Arc<RateLimit>>, step: Duration) -> Self {
        Self { limits, step, budget: 4 * GRAIN }
    }

    /// Returns `true` if there is a rate limit.
    pub fn is_limited(&self) -> bool {
        !self.limits.is_empty()
    }

    /// Returns the number of bytes that the next step may move.
    pub fn budget(&self) -> u64 {
        self.limits.iter().fold(self.budget, |budget, limit| budget.min(limit.step()))
    }

    /// Adapts the budget after a step that moved `bytes` in `took`.
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

    /// Waits as long as the rate limits require after a step that moved `bytes`. Calls `go_on` to
    /// notice cancellation.
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
        let mut pace = StepPace::new(None, Duration::from_millis(40));
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
        let mut pace = StepPace::new(None, Duration::from_millis(40));
        let first = pace.budget();
        pace.moved(1, Duration::from_nanos(1));
        assert_eq!(pace.budget(), first);
    }
}

//! How much one step may move: enough to be fast, little enough to stay in control.

use std::time::{Duration, Instant};

use crate::Cancelled;

/// Adapts the budget of a step to the time a step should take, and keeps a limit if there is one.
#[derive(Debug)]
pub struct Pace {
    limit: Option<u64>,
    step: Duration,
    budget: u64,
    began: Instant,
    total: u64,
}

// Budgets are whole multiples of this, so that clones and O_DIRECT see aligned ranges.
const GRAIN: u64 = 1 << 20;
const LARGEST: u64 = 1 << 30;

impl Pace {
    /// A pace for steps of about `step`, and no more than `limit` bytes per second if given.
    pub fn new(limit: Option<u64>, step: Duration) -> Self {
        Self { limit, step, budget: 4 * GRAIN, began: Instant::now(), total: 0 }
    }

    /// Bytes the next step may move.
    pub fn budget(&self) -> u64 {
        match self.limit {
            // Ten steps a second, so that a slow limit is smooth.
            Some(limit) => self.budget.min((limit / 10).max(1)),
            None => self.budget,
        }
    }

    /// Learns from a step that moved `bytes` in `took`.
    pub fn moved(&mut self, bytes: u64, took: Duration) {
        self.total += bytes;
        if bytes < self.budget {
            return;
        }
        if took < self.step / 2 {
            self.budget = (self.budget * 2).min(LARGEST);
        } else if took > self.step * 2 {
            self.budget = (self.budget / 2 / GRAIN * GRAIN).max(GRAIN);
        }
    }

    /// Sleeps for as long as the limit demands, asking `watch` ten times a second.
    pub fn hold_back(
        &self,
        mut watch: impl FnMut() -> Result<(), Cancelled>,
    ) -> Result<(), Cancelled> {
        let Some(limit) = self.limit.filter(|l| *l > 0) else { return Ok(()) };
        let due = Duration::from_secs_f64(self.total as f64 / limit as f64);
        loop {
            let ahead = due.saturating_sub(self.began.elapsed());
            if ahead.is_zero() {
                return Ok(());
            }
            std::thread::sleep(ahead.min(Duration::from_millis(100)));
            watch()?;
        }
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

    #[test]
    fn a_tiny_limit_still_moves() {
        assert_eq!(Pace::new(Some(3), Duration::from_millis(40)).budget(), 1);
    }
}

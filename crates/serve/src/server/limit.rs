//! So many bytes a second for all answers together. Who is over it waits until what went too early is made
//! up for; nothing sleeps here.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// A limit of the rate.
#[derive(Debug)]
pub struct Limit {
    per_second: u64,
    /// Until then what has gone is too much.
    paid: Mutex<Instant>,
}

/// What may go at once after a pause, in time: less than this is not made up for.
const SLACK: Duration = Duration::from_millis(100);

impl Limit {
    /// At least one byte a second.
    pub fn new(per_second: u64) -> Self {
        Self { per_second: per_second.max(1), paid: Mutex::new(Instant::now()) }
    }

    /// What one step may move: ten steps a second, so that a slow limit is smooth.
    pub fn step(&self) -> u64 {
        (self.per_second / 10).max(1)
    }

    /// Whether something may go now.
    pub fn is_open(&self) -> bool {
        *self.paid.lock().unwrap_or_else(PoisonError::into_inner) <= Instant::now()
    }

    /// Counts what went.
    pub fn spend(&self, bytes: u64) {
        let mut paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let from = now.checked_sub(SLACK).map_or(now, |earliest| earliest.max(*paid));
        *paid = from + Duration::from_secs_f64(bytes as f64 / self.per_second as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_too_early_is_made_up_for() {
        let limit = Limit::new(1000);
        assert!(limit.is_open());
        limit.spend(0);
        assert!(limit.is_open());
        limit.spend(1 << 40);
        assert!(!limit.is_open());
        assert_eq!((limit.step(), Limit::new(0).step()), (100, 1));
    }
}

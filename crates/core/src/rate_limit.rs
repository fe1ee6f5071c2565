//! A limit on bytes per second, which several threads can keep together.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::Cancelled;

/// Bytes moved since the first one, against what is allowed by now.
#[derive(Debug)]
pub struct RateLimit {
    per_second: u64,
    began: OnceLock<Instant>,
    total: AtomicU64,
}

// How long a sleep may last before the caller is asked whether to go on.
const NAP: Duration = Duration::from_millis(50);

impl RateLimit {
    /// No more than `per_second` bytes a second, and at least one.
    pub fn new(per_second: u64) -> Self {
        Self { per_second: per_second.max(1), began: OnceLock::new(), total: AtomicU64::new(0) }
    }

    /// Bytes that may move at a time: ten steps a second, so that a slow limit is smooth.
    pub fn step(&self) -> u64 {
        (self.per_second / 10).max(1)
    }

    /// Counts `bytes` and sleeps as long as the limit demands, or until cancelled.
    pub fn keep(
        &self,
        bytes: u64,
        mut go_on: impl FnMut() -> Result<(), Cancelled>,
    ) -> Result<(), Cancelled> {
        let began = self.began.get_or_init(Instant::now);
        let total = self.total.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let due = Duration::from_secs_f64(total as f64 / self.per_second as f64);
        loop {
            let ahead = due.saturating_sub(began.elapsed());
            if ahead.is_zero() {
                return Ok(());
            }
            go_on()?;
            std::thread::sleep(ahead.min(NAP));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_over_the_limit_wait_and_a_stop_ends_the_wait() {
        let limit = RateLimit::new(1000);
        let began = Instant::now();
        limit.keep(100, || Ok(())).unwrap();
        assert!(began.elapsed() >= Duration::from_millis(99));
        assert_eq!(limit.keep(1 << 40, || Err(Cancelled)), Err(Cancelled));
    }

    #[test]
    fn a_tiny_limit_still_moves() {
        assert_eq!(RateLimit::new(3).step(), 1);
        assert_eq!(RateLimit::new(0).step(), 1);
    }
}

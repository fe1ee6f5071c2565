//! A limit on bytes per second that all workers keep together.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use thalweg_core::Cancelled;

/// Bytes moved since the first one, against what is allowed by now.
#[derive(Debug)]
pub(crate) struct Pace {
    limit: u64,
    began: OnceLock<Instant>,
    total: AtomicU64,
}

// How long a sleep may last before somebody is asked whether to go on.
const NAP: Duration = Duration::from_millis(50);

impl Pace {
    pub fn new(limit: u64) -> Self {
        Self { limit: limit.max(1), began: OnceLock::new(), total: AtomicU64::new(0) }
    }

    /// Counts `bytes` and sleeps as long as the limit demands, or until cancelled.
    pub fn keep(&self, bytes: u64, go_on: impl Fn() -> Result<(), Cancelled>) {
        let began = self.began.get_or_init(Instant::now);
        let total = self.total.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let due = Duration::from_secs_f64(total as f64 / self.limit as f64);
        loop {
            let ahead = due.saturating_sub(began.elapsed());
            if ahead.is_zero() || go_on().is_err() {
                return;
            }
            std::thread::sleep(ahead.min(NAP));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_over_the_limit_wait_and_a_stop_ends_the_wait() {
        let pace = Pace::new(1000);
        let began = Instant::now();
        pace.keep(100, || Ok(()));
        assert!(began.elapsed() >= Duration::from_millis(99));
        pace.keep(1 << 40, || Err(Cancelled));
    }
}

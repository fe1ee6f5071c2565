//! A limit in bytes per second, which several threads can share.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::{Cancelled, cadence::CANCEL_CHECK};

/// Computes when the next byte may be sent. A pause permits at most the bytes of 100 ms beyond the limit.
#[derive(Debug)]
pub struct RateLimit {
    per_second: u64,
    /// The moment until which no more bytes may be sent; `None` before the first byte.
    due: Mutex<Option<Instant>>,
}

/// The bytes of this time (one step) may be sent at once after a pause.
const SLACK: Duration = Duration::from_millis(100);
/// Upper bound of one wait. Its sum with an `Instant` cannot overflow.
const LONGEST: Duration = Duration::from_secs(u32::MAX as u64);

impl RateLimit {
    /// Creates a limit of `per_second` bytes per second, at least 1.
    pub fn new(per_second: u64) -> Self {
        Self { per_second: per_second.max(1), due: Mutex::new(None) }
    }

    /// Returns the number of bytes to move at a time: those of a tenth of a second, so that a low limit is smooth.
    pub fn step(&self) -> u64 {
        (self.per_second / 10).max(1)
    }

    /// Returns `true` if bytes may be sent now.
    pub fn is_open(&self) -> bool {
        let due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        due.is_none_or(|due| due <= Instant::now())
    }

    /// Counts `bytes` as sent. Returns the moment at which the limit allows more.
    pub fn spend(&self, bytes: u64) -> Instant {
        let cost = Duration::try_from_secs_f64(bytes as f64 / self.per_second as f64);
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let from =
            due.map_or(now, |due| now.checked_sub(SLACK).map_or(due, |least| least.max(due)));
        let until = from.min(now + LONGEST) + cost.unwrap_or(LONGEST).min(LONGEST);
        *due = Some(until);
        until
    }

    /// Counts `bytes` and sleeps as long as the limit requires, or until cancelled.
    pub fn keep(
        &self,
        bytes: u64,
        mut go_on: impl FnMut() -> Result<(), Cancelled>,
    ) -> Result<(), Cancelled> {
        let until = self.spend(bytes);
        loop {
            let ahead = until.saturating_duration_since(Instant::now());
            if ahead.is_zero() {
                return Ok(());
            }
            go_on()?;
            std::thread::sleep(ahead.min(CANCEL_CHECK));
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
    fn what_went_too_early_is_made_up_for() {
        let limit = RateLimit::new(1000);
        assert!(limit.is_open());
        limit.spend(0);
        assert!(limit.is_open());
        limit.spend(1 << 40);
        assert!(!limit.is_open());
    }

    #[test]
    fn a_pause_is_not_saved_up() {
        let limit = RateLimit::new(1000);
        limit.spend(1);
        std::thread::sleep(3 * SLACK);
        // If the pause of 300 ms gave full credit, these 300 bytes could be sent at once.
        let before = Instant::now();
        assert!(limit.spend(300) >= before + SLACK);
    }

    #[test]
    fn a_tiny_limit_still_moves_and_a_debt_fits_the_clock() {
        assert_eq!(RateLimit::new(3).step(), 1);
        assert_eq!(RateLimit::new(0).step(), 1);
        let limit = RateLimit::new(0);
        limit.spend(u64::MAX);
        assert!(limit.spend(u64::MAX) > Instant::now() && !limit.is_open());
    }
}

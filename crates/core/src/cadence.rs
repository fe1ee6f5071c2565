//! All intervals and limits of waits. They determine how often a wait is interrupted for checks, how often progress is
//! published, and how often an attempt is repeated.
//!
//! Waits for the same reason share one constant. A module that needs another value declares it beside its use, with the
//! reason for the difference.

use std::time::{Duration, Instant};

/// Longest time for which a blocked thread does not notice a cancellation.
pub const CANCEL_CHECK: Duration = Duration::from_millis(100);

/// Interval at which a worker adds its progress to shared counters. A shorter one would cause contention.
pub const PROGRESS_FLUSH: Duration = Duration::from_millis(50);

/// Number of attempts at an operation that another process can make fail, such as the choice of an unused name.
pub const ATTEMPTS: usize = 100;

/// Pause before the next attempt if a resource is exhausted (EMFILE, ENFILE), or while another process makes a change.
pub const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// Interval between two signs of life of a process, and between two checks that a silent peer is alive.
pub const LIVENESS: Duration = Duration::from_secs(1);

/// Time that a process gets to exit, or a client to read the last bytes, after the connection to it was closed.
pub const GRACE: Duration = Duration::from_secs(2);

/// Time without a reaction after which a process, a lock or a call that normally reacts at once counts as hung.
pub const HANG: Duration = Duration::from_secs(10);

/// Longest wait for another process that must do some work before it reacts, for example start. Suffices on a busy
/// machine.
pub const REACTION: Duration = Duration::from_secs(60);

/// A point in time at which a wait ends; `None` if it never ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// Returns a deadline `limit` from now. If the clock cannot represent that time, the deadline never passes.
    #[must_use]
    pub fn after(limit: Duration) -> Self {
        Self(Instant::now().checked_add(limit))
    }

    /// Returns the time left: zero if the deadline has passed, [`Duration::MAX`] without a deadline.
    #[must_use]
    pub fn remaining(self) -> Duration {
        self.0.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()))
    }

    /// Returns `true` if the deadline has passed.
    #[must_use]
    pub fn passed(self) -> bool {
        self.0.is_some_and(|at| Instant::now() >= at)
    }

    /// Returns the time until the next check for cancellation: [`CANCEL_CHECK`], or less if the deadline is earlier.
    #[must_use]
    pub fn until_check(self) -> Duration {
        self.remaining().min(CANCEL_CHECK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_passes_once_and_a_wait_without_one_never_ends() {
        assert!(Deadline::after(Duration::ZERO).passed());
        assert_eq!(Deadline::after(Duration::ZERO).remaining(), Duration::ZERO);
        let endless = Deadline::after(Duration::MAX);
        assert!(!endless.passed());
        assert_eq!(endless.remaining(), Duration::MAX);
        assert_eq!(endless.until_check(), CANCEL_CHECK);
    }
}

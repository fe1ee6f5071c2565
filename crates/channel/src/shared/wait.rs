//! Methods and limits of waiting for the peer, and the steps of sleeping and waking that lose no wake-up.

use super::stop::WaitStop;
use std::time::{Duration, Instant};
use thalweg_core::cadence::CANCEL_CHECK;

pub(crate) mod habit;
pub(crate) mod spin;
pub(crate) mod steps;

/// Method of waiting for the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Polls without pause. This has the shortest delay, but uses a whole processor.
    Spin,
    /// Polls for a while, then sleeps.
    Hybrid {
        /// Maximum polling time per wait. It is shortened automatically, down to zero, if most polling ends in sleeps.
        spin: Duration,
    },
    /// Sleeps at once.
    Block,
}

impl Wait {
    /// Polls for about as long as a sleep and a wake-up take. A wait then costs at most twice as much as the better of
    /// polling and sleeping. If both ends share a single processor, neither polls.
    pub const HYBRID: Self = Self::Hybrid { spin: Duration::from_micros(50) };
}

impl Default for Wait {
    fn default() -> Self {
        Self::HYBRID
    }
}

/// Conditions that end a wait without a result.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WaitLimits {
    /// Latest end of the wait; `None` means no limit.
    pub deadline: Option<Instant>,
    /// Called periodically during the wait; `true` ends it.
    pub stop: Option<fn() -> bool>,
}

impl WaitLimits {
    pub fn until(deadline: Option<Instant>) -> Self {
        Self { deadline, stop: None }
    }

    /// Returns an error if the deadline has passed or the `stop` function requests the end.
    pub fn check(&self) -> Result<(), WaitStop> {
        if self.stop.is_some_and(|stop| stop()) {
            return Err(WaitStop::Interrupted);
        }
        match self.deadline {
            Some(deadline) if Instant::now() >= deadline => Err(WaitStop::Late),
            _ => Ok(()),
        }
    }

    /// Returns how long the wait may sleep until [`WaitLimits::check`] is due; `None` means no limit.
    pub fn left(&self) -> Option<Duration> {
        let left = self.deadline.map(|at| at.saturating_duration_since(Instant::now()));
        match self.stop {
            Some(_) => Some(left.map_or(CANCEL_CHECK, |left| left.min(CANCEL_CHECK))),
            None => left,
        }
    }

    /// Like [`WaitLimits::left`], but at most `most`.
    pub fn left_of(&self, most: Duration) -> Duration {
        self.left().map_or(most, |left| left.min(most))
    }
}

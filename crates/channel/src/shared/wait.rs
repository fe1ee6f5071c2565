//! How an end waits for the other, and the steps of sleeping and waking that lose no wake-up.

use super::stop::Stop;
use std::time::{Duration, Instant};

pub(crate) mod habit;
pub(crate) mod spin;
pub(crate) mod steps;

/// How often a caller that can interrupt a wait is asked.
pub(crate) const ASK: Duration = Duration::from_millis(50);

/// How an end waits for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Looks again and again: the shortest delay, and a processor for itself.
    Spin,
    /// Looks for a while, then sleeps.
    Hybrid {
        /// How long to look; less, or not at all, while that ends in sleeps all the same.
        spin: Duration,
    },
    /// Sleeps at once.
    Block,
}

impl Wait {
    /// As long as a sleep and a wake-up take, roughly: then looking first costs at most twice what
    /// the better choice would have cost. Where both ends have one processor between them, neither
    /// spins.
    pub const HYBRID: Self = Self::Hybrid { spin: Duration::from_micros(50) };
}

impl Default for Wait {
    fn default() -> Self {
        Self::HYBRID
    }
}

/// What ends a wait early.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    /// `None` is for ever.
    pub deadline: Option<Instant>,
    /// Asked now and then whether to give up.
    pub stop: Option<fn() -> bool>,
}

impl Limits {
    pub fn until(deadline: Option<Instant>) -> Self {
        Self { deadline, stop: None }
    }

    /// Whether the caller still wants it.
    pub fn check(&self) -> Result<(), Stop> {
        if self.stop.is_some_and(|stop| stop()) {
            return Err(Stop::Interrupted);
        }
        match self.deadline {
            Some(deadline) if Instant::now() >= deadline => Err(Stop::Late),
            _ => Ok(()),
        }
    }

    /// How long a sleep may last before [`Limits::check`] is due; `None` is for ever.
    pub fn left(&self) -> Option<Duration> {
        let left = self.deadline.map(|at| at.saturating_duration_since(Instant::now()));
        match self.stop {
            Some(_) => Some(left.map_or(ASK, |left| left.min(ASK))),
            None => left,
        }
    }

    /// The same, but no longer than `most`.
    pub fn left_of(&self, most: Duration) -> Duration {
        self.left().map_or(most, |left| left.min(most))
    }
}

//! How an end waits for the other, and the steps of sleeping and waking that lose no wake-up.

use std::time::Duration;

pub(crate) mod spin;
pub(crate) mod steps;

/// How long to believe a peer's word that it lives, before the kernel is asked as well. It bounds
/// nothing for an honest peer, whose word the kernel marks; one that lies, or whose list the kernel
/// could not read because it had run out of memory, is found out.
pub(crate) const DOUBT: Duration = Duration::from_secs(1);

/// How an end waits for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Looks again and again: the shortest delay, and a processor for itself.
    Spin,
    /// Looks for so long, then sleeps.
    Hybrid {
        /// How long to look.
        spin: Duration,
    },
    /// Sleeps at once.
    Block,
}

impl Wait {
    /// As long as a sleep and a wake-up take, roughly: then looking first costs at most twice what
    /// the better choice would have cost. Where both ends have one processor between them, nobody
    /// spins.
    pub const HYBRID: Self = Self::Hybrid { spin: Duration::from_micros(50) };
}

impl Default for Wait {
    fn default() -> Self {
        Self::HYBRID
    }
}

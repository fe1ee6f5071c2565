//! What the caller will not give up for speed.

use serde::{Deserialize, Serialize};

/// Promises that hold once a transfer has returned.
///
/// A mechanism *gives* them pair by pair; a transfer *needs* them. The planner never hands out a
/// mechanism that gives less than is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guarantees {
    /// The sink gets the bytes as they were when the call was made: later writes to the source
    /// never show in it.
    pub stable: bool,
    /// Source and sink share no page of memory afterwards.
    pub private: bool,
    /// The bytes are on stable storage when the transfer returns. The driver sees to it by
    /// `fdatasync`; no mechanism gives it by itself.
    pub durable: bool,
}

impl Guarantees {
    /// What a copy gives: the sink is independent of the source. A clone (copy on write) gives the
    /// same, and so does handing over what a pipe or a socket held: nobody can write it any more.
    pub const COPIED: Self = Self { stable: true, private: true, durable: false };
    /// Pages stay shared with a source that may still be written: a later write shows in the sink.
    pub const SHARED: Self = Self { stable: false, private: false, durable: false };

    /// Whether a mechanism that gives `self` is good enough for a transfer that needs `needs`.
    /// `durable` is left out: the driver adds it to any mechanism.
    pub fn cover(self, needs: Self) -> bool {
        (self.stable || !needs.stable) && (self.private || !needs.private)
    }
}

impl Default for Guarantees {
    /// Stable and private: what users of `read` and `write` take for granted.
    fn default() -> Self {
        Self::COPIED
    }
}

/// What "best" means for a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Prefer {
    /// Least time on the clock.
    #[default]
    Wall,
    /// Least processor time, user and system together.
    Cpu,
    /// Least memory of our own: buffers, maps and pipes.
    Memory,
}

//! The length of a measurement. It is fixed before the start and does not depend on intermediate results.

use std::time::Duration;

/// Numbers of sessions and rounds, and the pause between sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    pub name: &'static str,
    /// Number of sessions, each in a fresh process. Intervals are computed over sessions.
    pub sessions: usize,
    pub rounds: usize,
    /// Minimum time between the end of a session and the start of the next one of the same study.
    pub pause: Duration,
}

impl Preset {
    /// For a first impression: three sessions give wide intervals.
    pub const QUICK: Self =
        Self { name: "quick", sessions: 3, rounds: 10, pause: Duration::from_secs(1) };
    /// For results that are quoted.
    pub const STANDARD: Self =
        Self { name: "standard", sessions: 6, rounds: 15, pause: Duration::from_secs(15) };
    /// Runs published articles at all their sizes. Long operations reduce the number of rounds, but not of sessions,
    /// because intervals are computed over sessions.
    pub const FULL: Self =
        Self { name: "full", sessions: 6, rounds: 5, pause: Duration::from_secs(15) };
}

//! The length of a run. It is fixed before the run starts and does not depend on intermediate results.

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
    /// For small differences, and if sessions disagree.
    pub const STRICT: Self =
        Self { name: "strict", sessions: 12, rounds: 20, pause: Duration::from_secs(45) };
}

/// The selection and parameters of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The preset's name, or `custom` if any of its values was changed.
    pub preset: String,
    pub sessions: usize,
    pub rounds: usize,
    /// Pause between two sessions of one study.
    pub pause: Duration,
    /// Intended duration of a sample.
    pub sample: Duration,
    pub seed: u64,
    /// The CPUs that arms and their helpers may use; empty for all.
    pub pinned: Vec<usize>,
    /// The cells to run; empty for all.
    pub only: Vec<String>,
    pub sizes: Sizes,
    /// The command that repeats the run; saved with the result.
    pub command: String,
}

/// The selection of a cell's sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sizes {
    All,
    /// All sizes except those that the study reserves for strict runs.
    Standard,
    /// The study's selection for quick runs.
    Quick,
    /// Only the sizes in this list, in the study's notation.
    These(Vec<String>),
}

/// Duration of a sample: long compared with the clock resolution, short compared with drift.
pub const SAMPLE: Duration = Duration::from_millis(20);

impl Settings {
    pub fn of(preset: Preset, seed: u64) -> Self {
        Self {
            preset: preset.name.to_owned(),
            sessions: preset.sessions,
            rounds: preset.rounds,
            pause: preset.pause,
            sample: SAMPLE,
            seed,
            pinned: Vec::new(),
            only: Vec::new(),
            sizes: match preset {
                Preset::QUICK => Sizes::Quick,
                Preset::STANDARD => Sizes::Standard,
                _ => Sizes::All,
            },
            command: String::new(),
        }
    }
}

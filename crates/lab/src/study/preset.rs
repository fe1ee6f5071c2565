//! How long a run is, settled before it begins: nothing that is seen on the way changes it.

use std::time::Duration;

/// Sessions, rounds, and the pause that spreads the sessions in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    pub name: &'static str,
    /// Fresh processes: intervals are over these.
    pub sessions: usize,
    pub rounds: usize,
    /// From the end of a study's session to the beginning of its next one, at least.
    pub pause: Duration,
}

impl Preset {
    /// For a look: three sessions give wide intervals.
    pub const QUICK: Self =
        Self { name: "quick", sessions: 3, rounds: 10, pause: Duration::from_secs(1) };
    /// What a result should be quoted from.
    pub const STANDARD: Self =
        Self { name: "standard", sessions: 6, rounds: 15, pause: Duration::from_secs(15) };
    /// For small differences, and where sessions disagree.
    pub const STRICT: Self =
        Self { name: "strict", sessions: 12, rounds: 20, pause: Duration::from_secs(45) };
}

/// What is to be run, and how.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The preset's name, or `custom` if anything of it was changed.
    pub preset: String,
    pub sessions: usize,
    pub rounds: usize,
    /// Between two sessions of one study.
    pub pause: Duration,
    /// How long a sample is meant to be.
    pub sample: Duration,
    pub seed: u64,
    /// The processors that arms and their helpers may use; empty for all.
    pub pinned: Vec<usize>,
    /// The cells to run; empty for all.
    pub only: Vec<String>,
    pub sizes: Sizes,
    /// The command that repeats the run, for the record.
    pub command: String,
}

/// Which of a cell's sizes are run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sizes {
    All,
    /// All but those that the study keeps for a strict run.
    Standard,
    /// The study's choice for a quick run.
    Quick,
    /// Those among these, written as the study writes them.
    These(Vec<String>),
}

/// A sample of this length is long against the clock and short against what drifts.
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

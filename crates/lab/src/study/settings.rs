//! The selection and length of a run.

use std::time::Duration;
use thalweg_measure::preset::Preset;

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
    /// The CPUs that arms (compared variants) and their helpers may use; empty for all.
    pub pinned: Vec<usize>,
    /// The cells to run; empty for all.
    pub only: Vec<String>,
    pub sizes: SizeSelection,
    /// The command that repeats the run; saved with the result.
    pub command: String,
}

/// Selects the sizes at which a test case is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SizeSelection {
    All,
    /// All sizes except those that the study reserves for full runs.
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
                Preset::QUICK => SizeSelection::Quick,
                Preset::STANDARD => SizeSelection::Standard,
                _ => SizeSelection::All,
            },
            command: String::new(),
        }
    }
}

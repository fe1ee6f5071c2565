//! What a run tells a session on its stdin, and what a session answers, line by line.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use thalweg_core::Guarantees;

use super::result::{Place, ProbeResult, SessionSamples};

/// One session's work: the one line on its stdin.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct SessionJob {
    /// Its number, from 0.
    pub session: usize,
    /// The study file's text.
    pub text: String,
    /// The study file's folder.
    pub folder: PathBuf,
    /// An empty folder for files. Whoever started the session removes it.
    pub scratch: PathBuf,
    pub program: PathBuf,
    pub rounds: usize,
    /// How long a sample is meant to be.
    pub sample_seconds: f64,
    /// Draws the orders; each session has its own.
    pub seed: u64,
    /// Processors to stay on; empty for all.
    pub pinned: Vec<usize>,
    pub places: Vec<Place>,
}

/// One line of a session's stdout.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// A place begins: its number among the job's.
    Place { place: usize },
    Round {
        /// The number of the place.
        place: usize,
        done: usize,
        /// 10^9 bytes a second of each arm in this round.
        rates: Vec<(String, f64)>,
    },
    /// An arm delivered wrong bytes: the run has failed.
    Wrong { arm: String, place: Place, reason: String },
    /// The session is over.
    Done { log: SessionLog },
}

/// Everything one session saw.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct SessionLog {
    /// The session's number, from 0.
    pub session: usize,
    /// What harness and meter cost: median seconds of a sample that does nothing.
    pub null_seconds: f64,
    /// Place by place, in the order of the job.
    pub places: Vec<PlaceLog>,
    /// What the probes found, one session in each.
    pub probes: Vec<ProbeResult>,
}

/// What one session saw in one place.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct PlaceLog {
    pub place: Place,
    /// The arms that gave samples.
    pub arms: Vec<ArmRun>,
    /// Those that gave none, or failed under way, and why.
    pub missing: Vec<(String, String)>,
    /// Seconds on the clock for all of it, from opening the arms to looking at their bytes.
    pub seconds: f64,
}

/// One arm in one session and place.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct ArmRun {
    pub name: String,
    pub promises: Option<Guarantees>,
    /// What the alias probe saw.
    pub alias: Option<String>,
    pub taken: SessionSamples,
    /// How many of the samples are marked.
    pub marked: usize,
    /// Why nobody counted its calls, though somebody tried.
    pub calls_uncounted: Option<String>,
}

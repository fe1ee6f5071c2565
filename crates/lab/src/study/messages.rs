//! The messages between a run and a session: one job on stdin, events on stdout, one per line.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use thalweg_core::Guarantees;

use super::result::{Condition, ProbeResult, SessionSamples};

/// The job of one session: the only line on its stdin.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct SessionJob {
    /// The number of the session, from 0.
    pub session: usize,
    /// The text of the study file.
    pub text: String,
    /// The directory of the study file.
    pub folder: PathBuf,
    /// An empty directory for temporary files. The process that started the session removes it.
    pub scratch: PathBuf,
    pub program: PathBuf,
    pub rounds: usize,
    /// Intended duration of a sample.
    pub sample_seconds: f64,
    /// Seed for the random orders; different for each session.
    pub seed: u64,
    /// The CPUs to run on; empty for all.
    pub pinned: Vec<usize>,
    pub places: Vec<Condition>,
}

/// One line on a session's stdout.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum SessionEvent {
    /// The session starts with a condition; `place` is its index in the job.
    Place { place: usize },
    Round {
        /// The index of the condition.
        place: usize,
        done: usize,
        /// Throughput of each arm (a compared variant) in this round, in 10^9 bytes per second.
        rates: Vec<(String, f64)>,
    },
    /// An arm delivered wrong bytes, so the run has failed.
    Wrong { arm: String, place: Condition, reason: String },
    /// The session is finished.
    Done { log: SessionLog },
}

/// All results of one session.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct SessionLog {
    /// The session's number, from 0.
    pub session: usize,
    /// Overhead of the harness: median wall time of a sample that does nothing, in seconds.
    pub null_seconds: f64,
    /// The conditions in the order of the job.
    pub places: Vec<ConditionLog>,
    /// Probe results; each contains one session.
    pub probes: Vec<ProbeResult>,
}

impl SessionLog {
    /// Returns the wall time of a condition, in seconds; 0 if the session does not have the
    /// condition.
    pub fn seconds_of(&self, place: &Condition) -> f64 {
        self.places.iter().find(|log| log.place == *place).map_or(0.0, |log| log.seconds)
    }
}

/// The results of one session under one condition.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ConditionLog {
    pub place: Condition,
    /// The arms that have samples.
    pub arms: Vec<ArmRun>,
    /// Arms that have no samples or failed during the rounds, with the reason.
    pub missing: Vec<(String, String)>,
    /// Total wall time in seconds, from opening the arms to verifying their output.
    pub seconds: f64,
}

/// The results of one arm in one session under one condition.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct ArmRun {
    pub name: String,
    pub promises: Option<Guarantees>,
    /// The result of the alias probe.
    pub alias: Option<String>,
    pub taken: SessionSamples,
    /// Number of rounds in which a sample shows a sign of other activity. If the arm failed or its
    /// times are doubted, the number of all samples.
    pub marked: usize,
    /// The reason why counting the system calls failed.
    pub calls_uncounted: Option<String>,
}

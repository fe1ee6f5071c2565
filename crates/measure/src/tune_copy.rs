//! The engine behind `copy --tune`: a few seconds of interleaved rounds on a slice of the user's own data, with the
//! system's `cp` as one of the arms (compared variants). It prints nothing and removes all its files.

mod bench;
mod entrants;
mod evaluation;
mod file;
mod pick;
mod result;
mod slice;
mod tree;
mod tree_arms;

pub use result::{CopyChoice, TuneResult, TunedArm, UnavailableArm};
pub use slice::{Placement, SliceFacts};

use std::{
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use thalweg_core::{Cancelled, Guarantees, MECHANISMS, Request};
use thalweg_tree::CopyOptions;

use crate::{StopCheck, busy::BusyProcessors};

/// The job to measure, and the available time.
pub struct TuneJob<'j> {
    /// The paths to copy.
    pub sources: &'j [PathBuf],
    /// An existing directory on the destination's file system.
    pub destination: &'j Path,
    /// The options of the copy, as far as they affect the measurement of a tree: attributes, holes, clones, threads.
    pub options: &'j CopyOptions,
    /// The request to the planner for each file.
    pub request: Request,
    /// The required guarantees. `durable` is ignored in the measurement, because `cp` does not sync.
    pub needs: Guarantees,
    /// Wall time for everything including set-up. A short copy uses less. A single sample may exceed the budget once
    /// it has started.
    pub budget: Duration,
    /// Seed for the order of the rounds.
    pub seed: u64,
    /// Called every few milliseconds.
    pub stop: &'j StopCheck<'j>,
}

/// The reason why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// The job cannot be measured in advance. Copying may still work.
    #[error("cannot measure this copy in advance: {reason}")]
    NotTunable { reason: String },
    /// The caller asked to stop.
    #[error("stopped")]
    Cancelled(#[from] Cancelled),
    /// A file operation of the measurement failed.
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
}

impl TuneError {
    pub fn not_tunable(reason: impl Into<String>) -> Self {
        Self::NotTunable { reason: reason.into() }
    }

    pub fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        |source| Self::Io { path: path.to_owned(), source }
    }
}

/// Measures the methods for a job. The caller then adds the cells to its profile ([`TuneResult::teach`]) and plans
/// again.
pub fn tune(job: &TuneJob<'_>) -> Result<TuneResult, TuneError> {
    let mut kinds = Vec::with_capacity(job.sources.len());
    for source in job.sources {
        kinds.push(std::fs::metadata(source).map_err(TuneError::io(source))?);
    }
    let busy = BusyProcessors::briefly();
    let found = match (&kinds[..], job.sources) {
        ([meta], [source]) if meta.is_file() => file::tune_file(job, source, MECHANISMS),
        (kinds, _) if kinds.iter().all(|meta| meta.is_file() || meta.is_dir()) => {
            tree::tune_tree(job, &tree_arms::copy_tree)
        }
        _ => Err(TuneError::not_tunable("only regular files and directories can be measured")),
    };
    found.map(|found| TuneResult { busy, ..found })
}

/// The minimum fraction of the budget to use, even for a short copy. With less, nothing can be shown.
const LEAST_SHARE: f64 = 0.1;

/// The time budget of one tuning.
#[derive(Clone, Copy, Debug)]
pub struct TuneClock {
    began: Instant,
    budget: Duration,
    enough: Duration,
}

impl TuneClock {
    pub fn start(budget: Duration) -> Self {
        let mut clock = Self { began: Instant::now(), budget, enough: budget };
        clock.enough = clock.deadline();
        clock
    }

    /// Limits the measurement to the expected duration of the copy, in seconds, because a longer measurement cannot pay
    /// off. At least [`LEAST_SHARE`] of the budget remains. The minimum number of rounds may take longer, up to
    /// [`Self::deadline`].
    pub fn shorten(&mut self, copy: f64) {
        let least = self.budget.as_secs_f64() * LEAST_SHARE;
        let enough = self.spent().as_secs_f64() + copy.max(least);
        self.enough = Duration::from_secs_f64(enough.min(self.deadline().as_secs_f64()));
    }

    /// Returns the time since the start.
    pub fn spent(&self) -> Duration {
        self.began.elapsed()
    }

    /// Returns the time after the start when the last sample should end. A twentieth of the budget is reserved for
    /// the evaluation.
    pub fn deadline(&self) -> Duration {
        self.budget.mul_f64(0.95)
    }

    /// Returns `true` if no further sample should start.
    pub fn is_spent(&self) -> bool {
        self.spent() >= self.deadline()
    }

    /// Returns the time after the start at which rounds end, once their minimum number is done.
    pub fn enough(&self) -> Duration {
        self.enough
    }

    /// Returns the remaining time for samples.
    pub fn left(&self) -> Duration {
        self.enough.saturating_sub(self.spent())
    }
}

#[cfg(test)]
mod tests;

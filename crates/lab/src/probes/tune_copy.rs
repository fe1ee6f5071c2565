//! The engine behind `copy --tune`: a few seconds of interleaved rounds on a slice of the user's
//! own data, the system's `cp` among the arms. It prints nothing and leaves nothing behind.

mod bench;
mod entrants;
mod file;
mod pick;
mod result;
mod slice;
mod sum;
mod tree;
mod tree_arms;

pub use result::{ArmResult, Choice, TuneResult, Unavailable};
pub use slice::{Placement, SliceFacts};

use std::{
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use thalweg_core::{Cancelled, Guarantees, MECHANISMS, Request};
use thalweg_tree::CopyOptions;

use crate::measure::{Stop, busy::Busy};

/// What is to be measured, and for how long.
pub struct TuneJob<'j> {
    /// What will be copied.
    pub sources: &'j [PathBuf],
    /// An existing folder on the file system it will be copied to.
    pub destination: &'j Path,
    /// What the copy will be asked for, as far as it shapes the measurement of a tree: attributes,
    /// holes, clones, threads.
    pub options: &'j CopyOptions,
    /// What the planner will be asked for, file by file.
    pub request: Request,
    /// What must hold after the copy. `durable` is left out of the measurement: `cp` does not sync.
    pub needs: Guarantees,
    /// Time on the clock for everything, set-up included; less is used for a copy that is shorter.
    /// Once begun, a single sample may overrun.
    pub budget: Duration,
    /// Draws the orders of the rounds: the same seed draws the same ones.
    pub seed: u64,
    /// Asked every few milliseconds.
    pub stop: &'j Stop<'j>,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// The job cannot be measured beforehand. Copying it is another matter.
    #[error("cannot be measured beforehand: {reason}")]
    NotTunable { reason: String },
    /// The caller asked to stop.
    #[error("stopped")]
    Cancelled(#[from] Cancelled),
    /// The file system refused something the measurement needs.
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
}

impl TuneError {
    pub(crate) fn not_tunable(reason: impl Into<String>) -> Self {
        Self::NotTunable { reason: reason.into() }
    }

    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        |source| Self::Io { path: path.to_owned(), source }
    }
}

/// Measures the ways of doing a job. The caller hands the cells to its profile
/// ([`TuneResult::teach`]) and plans again.
pub fn tune(job: &TuneJob<'_>) -> Result<TuneResult, TuneError> {
    let mut kinds = Vec::with_capacity(job.sources.len());
    for source in job.sources {
        kinds.push(std::fs::metadata(source).map_err(TuneError::io(source))?);
    }
    let busy = Busy::briefly();
    let found = match (&kinds[..], job.sources) {
        ([meta], [source]) if meta.is_file() => file::tune_file(job, source, MECHANISMS),
        (kinds, _) if kinds.iter().all(|meta| meta.is_file() || meta.is_dir()) => {
            tree::tune_tree(job, &tree_arms::copy_tree)
        }
        _ => Err(TuneError::not_tunable("what is read from it cannot be read again")),
    };
    found.map(|found| TuneResult { busy, ..found })
}

/// The part of the budget that is measured for, however short the copy: less shows nothing.
const LEAST_SHARE: f64 = 0.1;

/// The clock of one tuning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    began: Instant,
    budget: Duration,
    enough: Duration,
}

impl Clock {
    pub fn start(budget: Duration) -> Self {
        let mut clock = Self { began: Instant::now(), budget, enough: budget };
        clock.enough = clock.deadline();
        clock
    }

    /// Measures from now on no longer than the copy is expected to take, in seconds: longer
    /// measuring cannot pay. [`LEAST_SHARE`] of the budget is always there, and on a busy machine the
    /// time for the least rounds.
    pub fn shorten(&mut self, copy: f64) {
        let least = self.budget.as_secs_f64() * LEAST_SHARE;
        let enough = self.spent().as_secs_f64() + copy.max(least);
        self.enough = Duration::from_secs_f64(enough.min(self.deadline().as_secs_f64()));
    }

    /// Time since the start.
    pub fn spent(&self) -> Duration {
        self.began.elapsed()
    }

    /// When, after the start, the last sample should be done: a twentieth is kept for sums.
    pub fn deadline(&self) -> Duration {
        self.budget.mul_f64(0.95)
    }

    /// Whether no sample is begun any more.
    pub fn is_spent(&self) -> bool {
        self.spent() >= self.deadline()
    }

    /// When, after the start, no further round is worth its time, if the least are done.
    pub fn enough(&self) -> Duration {
        self.enough
    }

    /// Time for samples that is left.
    pub fn left(&self) -> Duration {
        self.enough.saturating_sub(self.spent())
    }
}

#[cfg(test)]
mod tests;

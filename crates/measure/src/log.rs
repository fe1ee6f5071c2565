//! All samples, in the order in which they were taken.

use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, time::Duration};

use super::{sample::Sample, stats::median};

/// All rounds of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SampleLog {
    /// The arms (compared variants), by index.
    pub arms: Vec<ArmLog>,
    /// The samples of each round, in the order of that round.
    pub rounds: Vec<Vec<SampleEntry>>,
}

/// The state of an arm, without its samples.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ArmLog {
    pub name: String,
    /// The reason why the arm was not sampled to the end.
    pub dropped: Option<String>,
    /// `true` if the reason was a failure.
    pub failed: bool,
}

/// A sample with its arm.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SampleEntry {
    pub arm: usize,
    pub sample: Sample,
    /// Wall time of taking the sample, including preparation and clean-up.
    pub cost: Duration,
}

impl SampleLog {
    /// Adds an arm and returns its index.
    pub fn enter(&mut self, name: &str) -> usize {
        self.arms.push(ArmLog { name: name.to_owned(), ..ArmLog::default() });
        self.arms.len() - 1
    }

    pub(super) fn add(&mut self, entry: SampleEntry) {
        if let Some(round) = self.rounds.last_mut() {
            round.push(entry);
        }
    }

    /// Returns the samples of an arm, oldest first.
    pub fn samples(&self, arm: usize) -> impl Iterator<Item = &Sample> {
        self.entries(arm).map(|entry| &entry.sample)
    }

    fn entries(&self, arm: usize) -> impl Iterator<Item = &SampleEntry> {
        self.rounds.iter().flatten().filter(move |entry| entry.arm == arm)
    }

    /// Returns the number of rounds in which an arm took part.
    pub fn rounds_of(&self, arm: usize) -> usize {
        self.rounds.iter().filter(|round| round.iter().any(|e| e.arm == arm)).count()
    }

    /// Returns the indices of the arms that have samples.
    pub(super) fn arms_sampled(&self) -> BTreeSet<usize> {
        self.rounds.iter().flatten().map(|entry| entry.arm).collect()
    }

    /// Returns the cost per byte of an arm's fastest sample, divided by the median of another arm. The fastest sample
    /// is used, because an outlier among few samples must not exclude an arm.
    pub(super) fn times_slower(&self, arm: usize, other: usize) -> Option<f64> {
        let cost = |sample: &Sample| sample.wall_seconds() / sample.bytes.max(1) as f64;
        let fastest = self.samples(arm).map(cost).min_by(f64::total_cmp)?;
        let others: Vec<f64> = self.samples(other).map(cost).collect();
        Some(fastest / median(&others)?)
    }

    /// Returns the average wall time of taking a sample of an arm, including preparation and clean-up.
    fn cost(&self, arm: usize) -> Duration {
        let (count, sum) = self
            .entries(arm)
            .fold((0_u32, Duration::ZERO), |(n, sum), entry| (n + 1, sum + entry.cost));
        sum.checked_div(count).unwrap_or_default()
    }

    /// Returns the minimum wall time of taking a sample of an arm.
    pub(super) fn least_cost(&self, arm: usize) -> Duration {
        self.entries(arm).map(|entry| entry.cost).min().unwrap_or_default()
    }

    /// Returns the expected duration of a round of these arms, one of them sampled twice.
    pub fn round_cost(&self, active: &[usize]) -> Duration {
        let sum: Duration = active.iter().map(|arm| self.cost(*arm)).sum();
        sum + sum.checked_div(active.len() as u32).unwrap_or_default()
    }
}

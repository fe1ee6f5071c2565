//! Every sample taken, in the order it was taken.

use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, time::Duration};

use super::{sample::Sample, stats::median};

/// All rounds of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Log {
    /// The arms, by their numbers.
    pub arms: Vec<ArmLog>,
    /// The rounds, each in its own order.
    pub rounds: Vec<Vec<Entry>>,
}

/// What is known of an arm besides its samples.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ArmLog {
    pub name: String,
    /// Why it was not sampled to the end.
    pub dropped: Option<String>,
    /// Whether that was because it failed.
    pub failed: bool,
}

/// One sample and where it belongs.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Entry {
    pub arm: usize,
    pub sample: Sample,
    /// What taking the sample cost, with preparing and tidying up.
    pub cost: Duration,
}

impl Log {
    /// Gives an arm the next number.
    pub fn enter(&mut self, name: &str) -> usize {
        self.arms.push(ArmLog { name: name.to_owned(), ..ArmLog::default() });
        self.arms.len() - 1
    }

    pub(super) fn add(&mut self, entry: Entry) {
        if let Some(round) = self.rounds.last_mut() {
            round.push(entry);
        }
    }

    /// The samples of an arm, oldest first.
    pub fn samples(&self, arm: usize) -> impl Iterator<Item = &Sample> {
        self.entries(arm).map(|entry| &entry.sample)
    }

    fn entries(&self, arm: usize) -> impl Iterator<Item = &Entry> {
        self.rounds.iter().flatten().filter(move |entry| entry.arm == arm)
    }

    /// Rounds in which an arm took part.
    pub fn rounds_of(&self, arm: usize) -> usize {
        self.rounds.iter().filter(|round| round.iter().any(|e| e.arm == arm)).count()
    }

    /// The arms that have samples, each once.
    pub(super) fn arms_sampled(&self) -> BTreeSet<usize> {
        self.rounds.iter().flatten().map(|entry| entry.arm).collect()
    }

    /// How many times slower per byte than another arm's median even the fastest sample of an arm was:
    /// of few samples one may lie far out, and that must not condemn an arm.
    pub(super) fn times_slower(&self, arm: usize, other: usize) -> Option<f64> {
        let cost = |sample: &Sample| sample.wall_seconds() / sample.bytes.max(1) as f64;
        let fastest = self.samples(arm).map(cost).min_by(f64::total_cmp)?;
        let others: Vec<f64> = self.samples(other).map(cost).collect();
        Some(fastest / median(&others)?)
    }

    /// What one sample of an arm costs on average, preparing and tidying up included.
    fn cost(&self, arm: usize) -> Duration {
        let (count, sum) = self
            .entries(arm)
            .fold((0_u32, Duration::ZERO), |(n, sum), entry| (n + 1, sum + entry.cost));
        sum.checked_div(count).unwrap_or_default()
    }

    /// The least that one sample of an arm cost.
    pub(super) fn least_cost(&self, arm: usize) -> Duration {
        self.entries(arm).map(|entry| entry.cost).min().unwrap_or_default()
    }

    /// What a round of these arms costs, one of them twice.
    pub(crate) fn round_cost(&self, active: &[usize]) -> Duration {
        let sum: Duration = active.iter().map(|arm| self.cost(*arm)).sum();
        sum + sum.checked_div(active.len() as u32).unwrap_or_default()
    }
}

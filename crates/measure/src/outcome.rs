//! Evaluates the samples of a session: the ratio of two arms (compared variants) with its interval, the noise (an arm
//! compared with itself, A/A), and the resulting verdict. All commands that compare arms use it.

use std::collections::BTreeMap;
use thalweg_core::profile::Ratio;

use super::{
    log::SampleLog,
    sample::{Sample, SampleMetric},
    stats::{
        Random, RatioVerdict, median, noise_floor, noise_of, ratio_of_rounds, ratio_of_sessions,
        verdict,
    },
};

/// The quantity of a sample that is compared. It is above 0, and lower is better. Functions of a sample implement it
/// too.
pub trait SampleCost {
    fn cost(&self, sample: &Sample) -> f64;
}

impl<F: Fn(&Sample) -> f64> SampleCost for F {
    fn cost(&self, sample: &Sample) -> f64 {
        self(sample)
    }
}

impl SampleCost for SampleMetric {
    fn cost(&self, sample: &Sample) -> f64 {
        self.of(sample)
    }
}

/// The metric divided by the bytes moved, for arms with samples of different amounts of work.
#[derive(Clone, Copy, Debug)]
pub struct PerByte(pub SampleMetric);

impl SampleCost for PerByte {
    fn cost(&self, sample: &Sample) -> f64 {
        self.0.of(sample) / sample.bytes.max(1) as f64
    }
}

/// The result of one arm against another in one session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatioOutcome {
    /// Cost of the arm divided by the cost of the other.
    pub ratio: Ratio,
    /// Relative difference between two samples of one arm.
    pub noise: f64,
}

impl RatioOutcome {
    /// Returns faster or slower only if the interval excludes 1 and the difference exceeds the noise.
    pub fn word(&self) -> RatioVerdict {
        verdict(&self.ratio, self.noise)
    }

    /// Returns the smallest relative difference that this measurement could have shown: the noise or half the width of
    /// the interval, whichever is larger.
    pub fn smallest(&self) -> f64 {
        f64::max(self.noise, (self.ratio.hi / self.ratio.lo).sqrt() - 1.0)
    }
}

impl SampleLog {
    /// Returns the costs of an arm divided by those of another, paired by round; `None` with fewer than two rounds.
    pub fn ratio(
        &self,
        arm: usize,
        other: usize,
        by: &impl SampleCost,
        random: &mut Random,
    ) -> Option<Ratio> {
        ratio_of_rounds(&self.paired(arm, other, by), random)
    }

    /// Returns the relative difference between two samples of one arm, from the arm that each round samples twice.
    pub fn noise(&self, by: &impl SampleCost, random: &mut Random) -> f64 {
        noise_floor(&self.doubled(by), random)
    }

    /// Returns ratio, noise and verdict of one arm against another.
    pub fn outcome(
        &self,
        arm: usize,
        other: usize,
        by: &impl SampleCost,
        random: &mut Random,
    ) -> Option<RatioOutcome> {
        let noise = self.noise(by, random);
        Some(RatioOutcome { ratio: self.ratio(arm, other, by, random)?, noise })
    }

    /// Returns the median of an arm's ratios to another. The median only selects the candidates that get more samples.
    /// Intervals decide which arm is the best (`thalweg_core::select`).
    pub fn median_ratio(&self, arm: usize, other: usize, by: &impl SampleCost) -> Option<f64> {
        median(&self.paired(arm, other, by)).map(f64::exp)
    }

    /// Returns the log ratios of an arm's costs to another's, one for each round that has both.
    pub fn paired(&self, arm: usize, other: usize, by: &impl SampleCost) -> Vec<f64> {
        self.costs(arm, by).against(&self.costs(other, by))
    }

    /// For each arm with two samples in a round, returns the log ratio of the later sample to the earlier one.
    pub fn doubled(&self, by: &impl SampleCost) -> Vec<f64> {
        let arms = self.arms_sampled();
        let twice = arms.into_iter().flat_map(|arm| self.costs(arm, by).twice());
        twice.collect::<BTreeMap<usize, f64>>().into_values().collect()
    }

    /// Returns the costs of an arm's samples, by round.
    pub fn costs(&self, arm: usize, by: &impl SampleCost) -> Costs {
        let rounds = self.rounds.iter().enumerate();
        Costs::of(rounds.flat_map(|(round, entries)| {
            let own = entries.iter().filter(move |entry| entry.arm == arm);
            own.map(move |entry| (round, by.cost(&entry.sample)))
        }))
    }
}

/// The logarithms of the costs of one arm's samples in one session, by round.
#[derive(Clone, Debug, Default)]
pub struct Costs(BTreeMap<usize, Vec<f64>>);

impl Costs {
    /// Creates the costs from the round and cost of each sample, in the order in which they were taken.
    pub fn of(samples: impl IntoIterator<Item = (usize, f64)>) -> Self {
        let mut rounds: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for (round, cost) in samples {
            rounds.entry(round).or_default().push(cost.ln());
        }
        Self(rounds)
    }

    /// Returns one value per round: the mean if the round has two samples.
    fn by_round(&self) -> impl Iterator<Item = (usize, f64)> {
        let mean = |costs: &[f64]| costs.iter().sum::<f64>() / costs.len() as f64;
        self.0.iter().map(move |(round, costs)| (*round, mean(costs)))
    }

    /// Returns the costs of the even or odd rounds only.
    #[must_use]
    pub fn half(&self, parity: usize) -> Self {
        let rounds = self.0.iter().filter(|(round, _)| *round % 2 == parity);
        Self(rounds.map(|(round, costs)| (*round, costs.clone())).collect())
    }

    /// Returns the log ratios to another arm's costs, one for each round that has both.
    pub fn against(&self, other: &Self) -> Vec<f64> {
        let other: BTreeMap<usize, f64> = other.by_round().collect();
        self.by_round().filter_map(|(round, own)| Some(own - other.get(&round)?)).collect()
    }

    /// Returns, for each round with two samples, its number and the log ratio of the later sample to the earlier one.
    pub fn twice(&self) -> Vec<(usize, f64)> {
        let pair = |costs: &Vec<f64>| Some(costs.get(1)? - costs.first()?);
        self.0.iter().filter_map(|(round, costs)| Some((*round, pair(costs)?))).collect()
    }

    /// Returns the median over the rounds, as a logarithm.
    pub fn median(&self) -> Option<f64> {
        median(&self.by_round().map(|(_, cost)| cost).collect::<Vec<_>>())
    }
}

/// Returns the ratio over sessions from the log ratios of their rounds. `None` with fewer than two sessions, because
/// a single session does not show the variation between sessions.
pub fn ratio_over(sessions: &[Vec<f64>], seed: u64) -> Option<Ratio> {
    let random = &mut Random::new(seed);
    (sessions.len() >= 2).then(|| ratio_of_sessions(sessions, random)).flatten()
}

/// Returns the A/A ratio over sessions and the resulting noise.
pub fn noise_over(doubled: &[Vec<f64>], seed: u64) -> (Option<Ratio>, f64) {
    let aa = ratio_over(doubled, seed);
    (aa, noise_of(aa.as_ref()))
}

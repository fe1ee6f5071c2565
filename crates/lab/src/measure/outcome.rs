//! What the samples of a session show: the ratio of two arms with its interval, how much an arm differs
//! from itself (A/A), and the word for both. Every command that judges asks here.

use std::collections::BTreeMap;
use thalweg_core::profile::Ratio;

use super::{
    log::Log,
    sample::{Metric, Sample},
    stats::{
        Random, Verdict, median, noise_floor, noise_of, ratio_of_rounds, ratio_of_sessions, verdict,
    },
};

/// What of a sample is compared: a number above 0, less is better. A function of a sample is one too.
pub trait Cost {
    fn cost(&self, sample: &Sample) -> f64;
}

impl<F: Fn(&Sample) -> f64> Cost for F {
    fn cost(&self, sample: &Sample) -> f64 {
        self(sample)
    }
}

impl Cost for Metric {
    fn cost(&self, sample: &Sample) -> f64 {
        self.of(sample)
    }
}

/// The metric divided by the bytes moved, where samples of different arms hold different amounts of work.
#[derive(Clone, Copy, Debug)]
pub struct PerByte(pub Metric);

impl Cost for PerByte {
    fn cost(&self, sample: &Sample) -> f64 {
        self.0.of(sample) / sample.bytes.max(1) as f64
    }
}

/// What one arm showed against another in one session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Cost divided by the other's cost.
    pub ratio: Ratio,
    /// How much two samples of one arm differ, as a fraction.
    pub noise: f64,
}

impl Outcome {
    /// Faster or slower, only if surely so and by more than the noise.
    pub fn word(&self) -> Verdict {
        verdict(&self.ratio, self.noise)
    }

    /// The smallest difference that would have been one here, as a fraction: beyond the noise, and beyond half of
    /// what the interval spans.
    pub fn smallest(&self) -> f64 {
        f64::max(self.noise, (self.ratio.hi / self.ratio.lo).sqrt() - 1.0)
    }
}

impl Log {
    /// An arm's costs divided by another's, paired by round; `None` of fewer than two rounds.
    pub fn ratio(
        &self,
        arm: usize,
        other: usize,
        by: &impl Cost,
        random: &mut Random,
    ) -> Option<Ratio> {
        ratio_of_rounds(&self.paired(arm, other, by), random)
    }

    /// How much two samples of one arm differ, from the arm that each round has twice.
    pub fn noise(&self, by: &impl Cost, random: &mut Random) -> f64 {
        noise_floor(&self.doubled(by), random)
    }

    /// Ratio, noise and word of one arm against another.
    pub fn outcome(
        &self,
        arm: usize,
        other: usize,
        by: &impl Cost,
        random: &mut Random,
    ) -> Option<Outcome> {
        let noise = self.noise(by, random);
        Some(Outcome { ratio: self.ratio(arm, other, by, random)?, noise })
    }

    /// The middle of an arm's ratios to another: by it the candidates are picked that deserve more
    /// samples. Which is the best is another question, asked of intervals (`thalweg_core::select`).
    pub fn median_ratio(&self, arm: usize, other: usize, by: &impl Cost) -> Option<f64> {
        median(&self.paired(arm, other, by)).map(f64::exp)
    }

    /// Log ratios of an arm's costs to another's, one for each round that has both.
    pub fn paired(&self, arm: usize, other: usize, by: &impl Cost) -> Vec<f64> {
        self.costs(arm, by).against(&self.costs(other, by))
    }

    /// Log ratios of the arm that a round has twice: the later sample to the earlier one.
    pub fn doubled(&self, by: &impl Cost) -> Vec<f64> {
        let arms = self.arms_sampled();
        let twice = arms.into_iter().flat_map(|arm| self.costs(arm, by).twice());
        twice.collect::<BTreeMap<usize, f64>>().into_values().collect()
    }

    /// What an arm's samples cost, round by round.
    pub fn costs(&self, arm: usize, by: &impl Cost) -> Costs {
        let rounds = self.rounds.iter().enumerate();
        Costs::of(rounds.flat_map(|(round, entries)| {
            let own = entries.iter().filter(move |entry| entry.arm == arm);
            own.map(move |entry| (round, by.cost(&entry.sample)))
        }))
    }
}

/// The logarithms of what the samples of one arm cost in one session, by the number of their round.
#[derive(Clone, Debug, Default)]
pub struct Costs(BTreeMap<usize, Vec<f64>>);

impl Costs {
    /// From the round and the cost of each sample, in the order they were taken.
    pub fn of(samples: impl IntoIterator<Item = (usize, f64)>) -> Self {
        let mut rounds: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for (round, cost) in samples {
            rounds.entry(round).or_default().push(cost.ln());
        }
        Self(rounds)
    }

    /// One for each round; of the two samples in a round the mean.
    fn by_round(&self) -> impl Iterator<Item = (usize, f64)> {
        let mean = |costs: &[f64]| costs.iter().sum::<f64>() / costs.len() as f64;
        self.0.iter().map(move |(round, costs)| (*round, mean(costs)))
    }

    /// Those of the even rounds, or of the odd ones.
    #[must_use]
    pub fn half(&self, parity: usize) -> Self {
        let rounds = self.0.iter().filter(|(round, _)| *round % 2 == parity);
        Self(rounds.map(|(round, costs)| (*round, costs.clone())).collect())
    }

    /// Log ratios to the other's costs, one for each round that has both.
    pub fn against(&self, other: &Self) -> Vec<f64> {
        let other: BTreeMap<usize, f64> = other.by_round().collect();
        self.by_round().filter_map(|(round, own)| Some(own - other.get(&round)?)).collect()
    }

    /// For each round that has two samples its number and the log ratio of the later to the earlier.
    pub fn twice(&self) -> Vec<(usize, f64)> {
        let pair = |costs: &Vec<f64>| Some(costs.get(1)? - costs.first()?);
        self.0.iter().filter_map(|(round, costs)| Some((*round, pair(costs)?))).collect()
    }

    /// The median over the rounds, a logarithm.
    pub fn median(&self) -> Option<f64> {
        median(&self.by_round().map(|(_, cost)| cost).collect::<Vec<_>>())
    }
}

/// The ratio over sessions, given by the log ratios of their rounds; `None` of fewer than two, for one
/// session says nothing of the next one.
pub fn ratio_over(sessions: &[Vec<f64>], seed: u64) -> Option<Ratio> {
    let random = &mut Random::new(seed);
    (sessions.len() >= 2).then(|| ratio_of_sessions(sessions, random)).flatten()
}

/// The A/A ratio over sessions, and the noise that it stands for.
pub fn noise_over(doubled: &[Vec<f64>], seed: u64) -> (Option<Ratio>, f64) {
    let aa = ratio_over(doubled, seed);
    (aa, noise_of(aa.as_ref()))
}

//! An experiment in this process: the arms (compared variants) that take turns, their samples, and their comparison.
//! Every command that compares arms builds an experiment.

use super::{
    log::SampleLog,
    outcome::{RatioOutcome, SampleCost},
    sample::Sample,
    schedule::{Lineup, SampleFailure, SampledArm, Schedule},
    stats::{Random, Spread},
};

#[derive(Default)]
pub struct Experiment<'a> {
    /// The arms, indexed as in the log.
    pub arms: Vec<SampledArm<'a>>,
    pub log: SampleLog,
}

impl<'a> Experiment<'a> {
    /// Adds an arm and returns its index.
    pub fn enter(&mut self, name: &str, arm: SampledArm<'a>) -> usize {
        self.arms.push(arm);
        self.log.enter(name)
    }

    /// Records that an arm failed before the rounds, which excludes it from them.
    pub fn fail(&mut self, arm: usize, reason: String) {
        self.log.arms[arm].dropped = Some(reason);
        self.log.arms[arm].failed = true;
    }

    /// Returns the indices of the arms that take part.
    pub fn active(&self) -> Vec<usize> {
        (0..self.arms.len()).filter(|arm| self.log.arms[*arm].dropped.is_none()).collect()
    }

    /// Runs rounds of these arms. May be called more than once.
    pub fn run(
        &mut self,
        schedule: &mut Schedule<'_>,
        lineup: Lineup,
    ) -> Result<(), SampleFailure> {
        schedule.run(&mut self.arms, lineup, &mut self.log)
    }
}

/// The results of all arms for one cost.
#[derive(Clone, Debug)]
pub struct JudgedLog {
    /// Relative difference between two samples of one arm.
    pub noise: f64,
    /// The result of each arm against the arm it is compared with.
    pub outcomes: Vec<Option<RatioOutcome>>,
}

impl SampleLog {
    /// Compares each arm with another arm. The n-th item of `against` is the index of the arm with which the n-th arm
    /// is compared. Arms that failed are excluded on both sides.
    pub fn judge(
        &self,
        against: impl IntoIterator<Item = Option<usize>>,
        by: &impl SampleCost,
        random: &mut Random,
    ) -> JudgedLog {
        let noise = self.noise(by, random);
        let counts = |arm: usize| !self.arms[arm].failed;
        let outcomes = against.into_iter().enumerate().map(|(arm, other)| {
            let other = other.filter(|other| counts(arm) && counts(*other))?;
            Some(RatioOutcome { ratio: self.ratio(arm, other, by, random)?, noise })
        });
        JudgedLog { noise, outcomes: outcomes.collect() }
    }

    /// Returns the quartiles of a value over an arm's samples.
    pub fn spread(&self, arm: usize, of: impl Fn(&Sample) -> f64) -> Option<Spread> {
        Spread::of(&self.samples(arm).map(of).collect::<Vec<f64>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        log::SampleEntry,
        sample::SampleMetric,
        stats::{MOST_NOISE, RatioVerdict},
    };
    use std::time::Duration;

    /// Returns ten rounds in which the second and the third arm each take twice the time of the
    /// first.
    fn log() -> SampleLog {
        let mut log = SampleLog::default();
        for name in ["a", "b", "c"] {
            log.enter(name);
        }
        for round in 0..10_u32 {
            let entry = |arm: usize, seconds: f64| {
                let wall = Duration::from_secs_f64(seconds * (1.0 + f64::from(round % 3) * 1e-3));
                SampleEntry { arm, sample: Sample { wall, ..Sample::default() }, cost: wall }
            };
            log.rounds.push(vec![entry(1, 0.02), entry(0, 0.01), entry(2, 0.02), entry(0, 0.01)]);
        }
        log
    }

    #[test]
    fn every_arm_is_judged_against_its_own_other_one_with_the_same_noise() {
        let judged =
            log().judge([None, Some(0), Some(1)], &SampleMetric::Wall, &mut Random::new(1));
        let words = judged.outcomes.iter().map(|shown| shown.map(|shown| shown.word()));
        let words: Vec<Option<RatioVerdict>> = words.collect();
        assert_eq!(
            words,
            [None, Some(RatioVerdict::Slower), Some(RatioVerdict::NoDifferenceShown)]
        );
        assert!(judged.noise < MOST_NOISE);
        assert!(
            judged
                .outcomes
                .iter()
                .flatten()
                .all(|shown| (shown.noise - judged.noise).abs() < 1e-12)
        );
    }

    #[test]
    fn what_failed_is_not_judged_and_judges_nothing() {
        let mut log = log();
        log.arms[1].failed = true;
        let against = [Some(2), Some(0), Some(1)];
        let judged = log.judge(against, &SampleMetric::Wall, &mut Random::new(1));
        assert!(judged.outcomes[0].is_some() && judged.outcomes[1..] == [None, None]);
    }
}

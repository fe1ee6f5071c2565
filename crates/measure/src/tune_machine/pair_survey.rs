//! Computes the cells (measurements) of a profile from the samples of sessions.

use std::collections::BTreeSet;
use thalweg_core::profile::{Cell, Load, Ratio, SinkState};

use super::{
    job::{ContestLog, EndKeys, SizeLog, TunedMethod},
    pair::EndPair,
};
use crate::{
    outcome::{Costs, PerByte, SampleCost},
    sample::SampleMetric,
    stats::{Random, median, noise_floor, ratio_of_sessions},
};

/// All sessions on one pair under one load and one state of the sink.
#[derive(Clone, Debug)]
pub struct PairSurvey {
    pub ends: EndPair,
    /// The background load.
    pub load: Load,
    /// The state of the sink before each transfer.
    pub sink_state: SinkState,
    pub sessions: Vec<ContestLog>,
}

impl PairSurvey {
    /// Returns the names of the ends in a profile; `None` if no session created them.
    pub fn keys(&self) -> Option<&EndKeys> {
        self.sessions.iter().find_map(|session| session.ends.as_ref())
    }

    /// Returns the sizes that at least one session measured, ascending.
    pub fn sizes(&self) -> Vec<u64> {
        let sizes = self.sessions.iter().flat_map(|s| &s.sizes).map(|log| log.size);
        sizes.collect::<BTreeSet<u64>>().into_iter().collect()
    }

    /// Returns the mechanisms that were measured at one size and that failed in no session, the reference first.
    pub fn ways(&self, size: u64) -> Vec<TunedMethod> {
        let mut ways: Vec<TunedMethod> = Vec::new();
        for way in self.logs(size).flat_map(|log| &log.ways) {
            if !ways.contains(way) && !self.failed(way) {
                ways.push(way.clone());
            }
        }
        ways
    }

    /// Returns the mechanism to which all ratios at one size refer; `None` if it failed in a session. Ratios to another
    /// mechanism would be taken for ratios to this one.
    pub fn reference(&self, size: u64) -> Option<TunedMethod> {
        let first = self.ways(size).into_iter().next()?;
        let is_reference = self.ends.contest().is_reference(&first.name);
        Some(first).filter(|way| is_reference && way.tuning.is_default())
    }

    /// Returns `true` if a mechanism failed in any session: one failure excludes it.
    fn failed(&self, way: &TunedMethod) -> bool {
        self.sessions.iter().any(|session| session.unfit.contains_key(way))
    }

    fn logs(&self, size: u64) -> impl Iterator<Item = &SizeLog> {
        self.sessions.iter().flat_map(|s| &s.sizes).filter(move |log| log.size == size)
    }

    /// Returns the sessions in which a mechanism took part at one size, with its index there.
    fn with(&self, size: u64, way: &TunedMethod) -> impl Iterator<Item = (&SizeLog, usize)> {
        self.logs(size).filter_map(move |log| Some((log, log.arm(way)?)))
    }

    /// Returns the costs of two mechanisms at one size, for each session that has both.
    pub(super) fn costs(
        &self,
        size: u64,
        way: &TunedMethod,
        other: &TunedMethod,
        metric: SampleMetric,
    ) -> Vec<(Costs, Costs)> {
        let both = self.with(size, way).filter_map(|(log, arm)| {
            let costs = |arm| log.log.costs(arm, &PerByte(metric));
            Some((costs(arm), costs(log.arm(other)?)))
        });
        both.collect()
    }

    /// Returns the ratio of one mechanism to another at one size, over sessions.
    pub fn ratio(
        &self,
        size: u64,
        way: &TunedMethod,
        other: &TunedMethod,
        metric: SampleMetric,
    ) -> Option<Ratio> {
        if way == other {
            return Some(Ratio::ONE);
        }
        let sessions = self.costs(size, way, other, metric).into_iter();
        let sessions: Vec<Vec<f64>> = sessions.map(|(way, other)| way.against(&other)).collect();
        ratio_of_sessions(&sessions, &mut resampling(size))
    }

    /// Returns the noise floor at one size, from the A/A pairs of all sessions. Both samples of a pair are from one
    /// round, so variation between sessions does not affect the noise.
    pub fn noise(&self, size: u64, metric: SampleMetric) -> f64 {
        let doubled: Vec<f64> = self.logs(size).flat_map(|log| log.log.doubled(&metric)).collect();
        noise_floor(&doubled, &mut resampling(size))
    }

    /// Returns a cell for every mechanism at every size that has an interval.
    pub fn cells(&self, at: &str) -> Vec<Cell> {
        let Some(keys) = self.keys() else { return Vec::new() };
        let mut cells = Vec::new();
        for size in self.sizes() {
            let Some(reference) = self.reference(size) else { continue };
            let noise = self.noise(size, SampleMetric::Wall);
            for way in self.ways(size) {
                let (Some(wall), Some(cpu)) = (
                    self.ratio(size, &way, &reference, SampleMetric::Wall),
                    self.ratio(size, &way, &reference, SampleMetric::Cpu),
                ) else {
                    continue;
                };
                let Some(seconds) = self.seconds_per_byte(size, &way) else { continue };
                let (sessions, rounds) = self.behind(size, &way);
                cells.push(Cell {
                    source: keys.source.clone(),
                    sink: keys.sink.clone(),
                    options: keys.options.clone(),
                    mechanism: way.name.clone(),
                    tuning: way.tuning.clone(),
                    size,
                    load: self.load,
                    sink_state: self.sink_state,
                    wall,
                    cpu,
                    noise,
                    ns_per_byte: seconds * 1e9,
                    memory: self.memory(size, &way),
                    sessions,
                    rounds,
                    at: at.to_owned(),
                    provisional: false,
                });
            }
        }
        cells
    }

    fn seconds_per_byte(&self, size: u64, way: &TunedMethod) -> Option<f64> {
        let samples = self.with(size, way).flat_map(|(log, arm)| log.log.samples(arm));
        let costs = samples.map(|sample| PerByte(SampleMetric::Wall).cost(sample));
        median(&costs.collect::<Vec<_>>())
    }

    /// Returns the number of sessions and rounds in which a mechanism took part.
    fn behind(&self, size: u64, way: &TunedMethod) -> (u32, u32) {
        let rounds = self.with(size, way).map(|(log, arm)| log.log.rounds_of(arm) as u32);
        let rounds = rounds.filter(|rounds| *rounds > 0);
        rounds.fold((0, 0), |(sessions, sum), rounds| (sessions + 1, sum + rounds))
    }

    /// Returns the maximum memory over all sessions.
    fn memory(&self, size: u64, way: &TunedMethod) -> Option<u64> {
        self.with(size, way).filter_map(|(log, arm)| *log.memory.get(arm)?).max()
    }
}

/// Returns a random generator. The size is its seed, so that repeated evaluations of the same
/// samples agree.
fn resampling(size: u64) -> Random {
    Random::new(size)
}

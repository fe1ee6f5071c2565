//! From samples to figures: costs of one operation, paired by round, session by session.

use std::collections::BTreeMap;
use thalweg_core::profile::{LEAST_NOISE, Ratio};

use super::result::{ArmResult, SessionSamples};
use crate::measure::{
    sample::{Metric, Sample},
    stats::{MOST_NOISE, Random, median, ratio_of_sessions},
};

/// Logarithms of the cost of one operation by round; of two samples in a round the mean.
fn by_round(session: &SessionSamples, metric: Metric) -> BTreeMap<usize, f64> {
    let operations = f64::from(session.repeats.max(1)).ln();
    let mut rounds: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for taken in &session.samples {
        let cost = metric.of(&taken.sample).ln() - operations;
        rounds.entry(taken.round).or_default().push(cost);
    }
    let mean = |costs: Vec<f64>| costs.iter().sum::<f64>() / costs.len() as f64;
    rounds.into_iter().map(|(round, costs)| (round, mean(costs))).collect()
}

/// The sessions in which somebody looked at the arm's bytes: no other decides anything.
fn checked(arm: &ArmResult) -> impl Iterator<Item = &SessionSamples> {
    arm.sessions.iter().filter(|session| !session.unchecked)
}

/// Log ratios of the costs of one operation of `a` to one of `b`: for the number of each session
/// that has both a list, with a ratio for each round that has both.
pub fn by_session(a: &ArmResult, b: &ArmResult, metric: Metric) -> BTreeMap<usize, Vec<f64>> {
    let sessions = checked(a).filter_map(|own| {
        let other = checked(b).find(|other| other.session == own.session)?;
        let number = own.session;
        let (own, other) = (by_round(own, metric), by_round(other, metric));
        let ratios = own.iter().filter_map(|(round, cost)| Some(cost - other.get(round)?));
        Some((number, ratios.collect::<Vec<f64>>())).filter(|(_, ratios)| !ratios.is_empty())
    });
    sessions.collect()
}

/// The lists alone.
pub fn paired(a: &ArmResult, b: &ArmResult, metric: Metric) -> Vec<Vec<f64>> {
    by_session(a, b, metric).into_values().collect()
}

/// For each session its number and the logarithm of the median cost of one operation.
pub fn costs(arm: &ArmResult, metric: Metric) -> BTreeMap<usize, f64> {
    let sessions = checked(arm).filter_map(|session| {
        let costs: Vec<f64> = by_round(session, metric).into_values().collect();
        Some((session.session, median(&costs)?))
    });
    sessions.collect()
}

/// Log ratios of arms to themselves, from the rounds in which one was sampled twice: the later
/// sample to the earlier one, a list for each session.
pub fn doubled(arms: &[ArmResult], metric: Metric) -> Vec<Vec<f64>> {
    let mut sessions: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for session in arms.iter().flat_map(|arm| &arm.sessions) {
        let ratios = session.samples.windows(2).filter(|pair| pair[0].round == pair[1].round);
        let log = |sample: &Sample| metric.of(sample).ln();
        let ratios = ratios.map(|pair| log(&pair[1].sample) - log(&pair[0].sample));
        sessions.entry(session.session).or_default().extend(ratios);
    }
    sessions.into_values().filter(|ratios| !ratios.is_empty()).collect()
}

/// The ratio of `a` to `b` over sessions; `None` of fewer than two, for one session says nothing of
/// the next one.
pub fn ratio(a: &ArmResult, b: &ArmResult, metric: Metric, seed: u64) -> Option<Ratio> {
    over_sessions(&paired(a, b, metric), seed)
}

/// The same of lists of log ratios.
pub fn over_sessions(sessions: &[Vec<f64>], seed: u64) -> Option<Ratio> {
    let random = &mut Random::new(seed);
    (sessions.len() >= 2).then(|| ratio_of_sessions(sessions, random)).flatten()
}

/// How far from 1 the A/A interval reaches: from [`LEAST_NOISE`] to [`MOST_NOISE`], and the most
/// where there is none.
pub fn noise_of(aa: Option<&Ratio>) -> f64 {
    let shown = aa.map_or(MOST_NOISE, |r| f64::max(r.hi, 1.0 / r.lo) - 1.0);
    shown.clamp(LEAST_NOISE, MOST_NOISE)
}

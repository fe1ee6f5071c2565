//! From samples to figures: costs of one operation, paired by round, session by session.

use std::collections::BTreeMap;
use thalweg_core::profile::Ratio;

use super::result::{ArmResult, SessionSamples};
use crate::measure::{
    outcome::{Costs, ratio_over},
    sample::Metric,
};

/// What one operation cost in the samples of a session.
fn costs_of(session: &SessionSamples, metric: Metric) -> Costs {
    let operations = f64::from(session.repeats.max(1));
    let samples = session.samples.iter();
    Costs::of(samples.map(|taken| (taken.round, metric.of(&taken.sample) / operations)))
}

/// The sessions in which somebody looked at the arm's bytes: no other decides anything.
fn checked(arm: &ArmResult) -> impl Iterator<Item = &SessionSamples> {
    arm.sessions.iter().filter(|session| !session.unchecked)
}

/// What one operation of `a` and one of `b` cost, by the numbers of the sessions that have both.
pub fn of_both(a: &ArmResult, b: &ArmResult, metric: Metric) -> BTreeMap<usize, (Costs, Costs)> {
    let sessions = checked(a).filter_map(|own| {
        let other = checked(b).find(|other| other.session == own.session)?;
        Some((own.session, (costs_of(own, metric), costs_of(other, metric))))
    });
    sessions.collect()
}

/// Log ratios of the costs of one operation of `a` to one of `b`: for the number of each session
/// that has both a list, with a ratio for each round that has both.
pub fn by_session(a: &ArmResult, b: &ArmResult, metric: Metric) -> BTreeMap<usize, Vec<f64>> {
    let sessions = of_both(a, b, metric).into_iter();
    let ratios = sessions.map(|(number, (own, other))| (number, own.against(&other)));
    ratios.filter(|(_, ratios)| !ratios.is_empty()).collect()
}

pub fn paired(a: &ArmResult, b: &ArmResult, metric: Metric) -> Vec<Vec<f64>> {
    by_session(a, b, metric).into_values().collect()
}

/// For each session its number and the logarithm of the median cost of one operation.
pub fn costs(arm: &ArmResult, metric: Metric) -> BTreeMap<usize, f64> {
    let sessions = checked(arm)
        .filter_map(|session| Some((session.session, costs_of(session, metric).median()?)));
    sessions.collect()
}

/// Log ratios of arms to themselves, from the rounds in which one was sampled twice: the later
/// sample to the earlier one, a list for each session.
pub fn doubled(arms: &[ArmResult], metric: Metric) -> Vec<Vec<f64>> {
    let mut sessions: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for session in arms.iter().flat_map(|arm| &arm.sessions) {
        let ratios = costs_of(session, metric).twice().into_iter().map(|(_, ratio)| ratio);
        sessions.entry(session.session).or_default().extend(ratios);
    }
    sessions.into_values().filter(|ratios| !ratios.is_empty()).collect()
}

/// The ratio of `a` to `b` over sessions; `None` of fewer than two, for one session says nothing of
/// the next one.
pub fn ratio(a: &ArmResult, b: &ArmResult, metric: Metric, seed: u64) -> Option<Ratio> {
    ratio_over(&paired(a, b, metric), seed)
}

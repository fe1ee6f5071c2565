//! Computes the cost of one operation from samples. Costs of two arms (compared variants) are paired by round within
//! each session.

use std::collections::BTreeMap;
use thalweg_core::profile::Ratio;

use super::result::{ArmResult, SessionSamples};
use thalweg_measure::{
    outcome::{Costs, ratio_over},
    sample::SampleMetric,
};

/// Returns the cost per operation for each sample of a session.
fn costs_of(session: &SessionSamples, metric: SampleMetric) -> Costs {
    let operations = f64::from(session.repeats.max(1));
    let samples = session.samples.iter();
    Costs::of(samples.map(|taken| (taken.round, metric.of(&taken.sample) / operations)))
}

/// Returns the sessions in which the arm's output was verified. Other sessions do not contribute to any verdict.
fn checked(arm: &ArmResult) -> impl Iterator<Item = &SessionSamples> {
    arm.sessions.iter().filter(|session| !session.unchecked)
}

/// Returns the costs per operation of `a` and `b`, keyed by session number, for the sessions that have both.
pub fn of_both(
    a: &ArmResult,
    b: &ArmResult,
    metric: SampleMetric,
) -> BTreeMap<usize, (Costs, Costs)> {
    let sessions = checked(a).filter_map(|own| {
        let other = checked(b).find(|other| other.session == own.session)?;
        Some((own.session, (costs_of(own, metric), costs_of(other, metric))))
    });
    sessions.collect()
}

/// Returns the log ratios of the cost per operation of `a` to that of `b`. The map has an entry for each session that
/// has both arms, with one ratio for each round that has both.
pub fn by_session(a: &ArmResult, b: &ArmResult, metric: SampleMetric) -> BTreeMap<usize, Vec<f64>> {
    let sessions = of_both(a, b, metric).into_iter();
    let ratios = sessions.map(|(number, (own, other))| (number, own.against(&other)));
    ratios.filter(|(_, ratios)| !ratios.is_empty()).collect()
}

pub fn paired(a: &ArmResult, b: &ArmResult, metric: SampleMetric) -> Vec<Vec<f64>> {
    by_session(a, b, metric).into_values().collect()
}

/// Returns, for each session number, the logarithm of the median cost of one operation.
pub fn costs(arm: &ArmResult, metric: SampleMetric) -> BTreeMap<usize, f64> {
    let sessions = checked(arm)
        .filter_map(|session| Some((session.session, costs_of(session, metric).median()?)));
    sessions.collect()
}

/// Returns the logarithms of the ratios between two samples of one arm, one list per session. Some rounds sample an arm
/// twice; the later sample is divided by the earlier one.
pub fn doubled(arms: &[ArmResult], metric: SampleMetric) -> Vec<Vec<f64>> {
    let mut sessions: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for session in arms.iter().flat_map(checked) {
        let ratios = costs_of(session, metric).twice().into_iter().map(|(_, ratio)| ratio);
        sessions.entry(session.session).or_default().extend(ratios);
    }
    sessions.into_values().filter(|ratios| !ratios.is_empty()).collect()
}

/// Returns the ratio of `a` to `b` over all sessions, or `None` with fewer than two sessions. A single session does not
/// show the variation between sessions.
pub fn ratio(a: &ArmResult, b: &ArmResult, metric: SampleMetric, seed: u64) -> Option<Ratio> {
    ratio_over(&paired(a, b, metric), seed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::result::StudyResult;

    #[test]
    fn sessions_without_verified_output_do_not_count_as_noise() {
        let text = include_str!("../../tests/data/result-1.json");
        let mut result: StudyResult = serde_json::from_str(text).unwrap();
        assert_ne!(doubled(&result.arms, SampleMetric::Wall).len(), 0);
        for session in result.arms.iter_mut().flat_map(|arm| &mut arm.sessions) {
            session.unchecked = true;
        }
        assert_eq!(doubled(&result.arms, SampleMetric::Wall).len(), 0);
    }
}

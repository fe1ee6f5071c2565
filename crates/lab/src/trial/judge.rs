//! Evaluates all runs: a row and a verdict for each arm (a compared variant).

use serde::Serialize;
use std::fmt;
use thalweg_core::profile::Ratio;

use super::arms::{OBJECT_ALONE, SettingKind, TrialSetting};
use thalweg_measure::{
    arms::command::RunMetric,
    log::SampleLog,
    stats::{Random, RatioVerdict, Spread},
};

/// The effect of an arm on the program, by the program's own metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrialEffect {
    /// Better, with certainty and by more than the noise.
    Helps,
    /// Worse, with certainty and by more than the noise.
    Hurts,
    /// The difference is not larger than the noise, or its sign is uncertain. Does not mean "equal".
    NoDifferenceShown,
}

impl fmt::Display for TrialEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Helps => "helps",
            Self::Hurts => "hurts",
            Self::NoDifferenceShown => "no difference shown",
        })
    }
}

/// An arm and its results.
#[derive(Clone, Debug, Serialize)]
pub struct TrialRow {
    #[serde(flatten)]
    pub setting: TrialSetting,
    pub runs: usize,
    /// The values of the metric; `None` without runs.
    pub value: Option<Spread>,
    /// The value divided by that of the unchanged program. `None` for that program itself, and with fewer than two
    /// rounds.
    pub ratio: Option<Ratio>,
    pub effect: Option<TrialEffect>,
    /// The smallest relative difference that these rounds could have shown for this arm.
    pub smallest: Option<f64>,
    /// The effect of a kernel without the cost of the object, that is relative to `object-alone`.
    pub beyond_object: Option<Beyond>,
    /// The reason why the arm was not run to the end.
    pub failed: Option<String>,
}

/// A kernel relative to libc's own functions called through the object.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Beyond {
    pub ratio: Ratio,
    pub effect: TrialEffect,
}

/// Returns the noise and a row for every arm of the log. The arms are `settings` in this order.
pub fn rows(
    log: &SampleLog,
    settings: &[TrialSetting],
    metric: &RunMetric,
    random: &mut Random,
) -> (f64, Vec<TrialRow>) {
    let against = (0..settings.len()).map(|arm| (arm > 0).then_some(0));
    let judged = log.judge(against, metric, random);
    let alone = settings.iter().position(|setting| setting.name == OBJECT_ALONE);
    let beside = settings.iter().enumerate().map(|(arm, setting)| {
        let is_kernel = matches!(setting.kind, SettingKind::Kernel { .. });
        alone.filter(|alone| is_kernel && arm != *alone)
    });
    let beside = log.judge(beside, metric, random).outcomes;
    let shown = judged.outcomes.into_iter().zip(beside);
    let rows =
        settings.iter().enumerate().zip(shown).map(|((arm, setting), (shown, beside))| TrialRow {
            setting: setting.clone(),
            runs: log.samples(arm).count(),
            value: log.spread(arm, |sample| sample.reported),
            ratio: shown.map(|shown| metric.ratio_of_values(shown.ratio)),
            effect: shown.map(|shown| shown.word().into()),
            smallest: shown.map(|shown| shown.smallest()),
            beyond_object: beside.map(|beside| Beyond {
                ratio: metric.ratio_of_values(beside.ratio),
                effect: beside.word().into(),
            }),
            failed: log.arms[arm].dropped.clone(),
        });
    (judged.noise, rows.collect())
}

impl From<RatioVerdict> for TrialEffect {
    fn from(word: RatioVerdict) -> Self {
        match word {
            RatioVerdict::Faster => Self::Helps,
            RatioVerdict::Slower => Self::Hurts,
            RatioVerdict::NoDifferenceShown => Self::NoDifferenceShown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::arms::{SettingKind, plain};
    use std::time::Duration;
    use thalweg_measure::{log::SampleEntry, sample::Sample};

    fn log_of(rounds: &[[f64; 3]]) -> (SampleLog, Vec<TrialSetting>) {
        let mut log = SampleLog::default();
        let kernel = || SettingKind::Kernel { copies: "simple".into(), fills: "libc".into() };
        let settings = vec![plain(), TrialSetting { name: "simple".into(), kind: kernel() }];
        for setting in &settings {
            log.enter(&setting.name);
        }
        for values in rounds {
            // The reference has two samples in each round.
            let entries = values.iter().zip([0, 1, 0]).map(|(value, arm)| {
                let sample = Sample { reported: *value, ..Sample::default() };
                SampleEntry { arm, sample, cost: Duration::ZERO }
            });
            log.rounds.push(entries.collect());
        }
        (log, settings)
    }

    fn judged(metric: &str, rounds: &[[f64; 3]]) -> TrialRow {
        let metric = RunMetric::parse(metric).unwrap();
        let (log, settings) = log_of(rounds);
        rows(&log, &settings, &metric, &mut Random::new(1)).1.pop().unwrap()
    }

    #[test]
    fn twice_the_time_hurts_and_twice_the_rate_helps() {
        let twice =
            [[10.0, 20.0, 10.1], [10.2, 20.5, 10.1], [10.1, 19.9, 10.0], [10.0, 20.2, 10.1]];
        let row = judged("wall", &twice);
        assert_eq!(row.effect, Some(TrialEffect::Hurts), "{row:?}");
        let row = judged("regex:x", &twice);
        assert_eq!(row.effect, Some(TrialEffect::Helps), "{row:?}");
        let ratio = row.ratio.unwrap();
        assert!(
            ratio.lo <= ratio.ratio && ratio.ratio <= ratio.hi && ratio.ratio > 1.9,
            "{ratio:?}"
        );
        assert!((row.value.unwrap().median - 20.1).abs() < 0.1);
    }

    #[test]
    fn what_the_noise_could_do_is_not_a_difference() {
        let noisy = [[10.0, 12.0, 15.0], [14.0, 11.0, 10.0], [10.0, 12.5, 12.0], [12.0, 11.5, 9.0]];
        assert_eq!(judged("wall", &noisy).effect, Some(TrialEffect::NoDifferenceShown));
        assert_eq!(judged("wall", &noisy[..1]).effect, None);
    }

    #[test]
    fn a_kernel_that_costs_what_being_in_between_costs_does_nothing_beyond_it() {
        let metric = RunMetric::parse("wall").unwrap();
        let (_, mut settings) = log_of(&[]);
        let object = SettingKind::Kernel { copies: "libc".into(), fills: "libc".into() };
        settings.insert(1, TrialSetting { name: OBJECT_ALONE.into(), kind: object });
        let mut log = SampleLog::default();
        for setting in &settings {
            log.enter(&setting.name);
        }
        for n in 0..8 {
            let values = [(0, 10.0), (1, 12.0), (2, 12.0), (0, 10.0)];
            let entries = values.iter().enumerate().map(|(place, (arm, value))| {
                // Values differ slightly from round to round, so that intervals are not empty.
                let told = value * (1.0 + f64::from((n * 5 + place as i32) % 4) / 1000.0);
                let sample = Sample { reported: told, ..Sample::default() };
                SampleEntry { arm: *arm, sample, cost: Duration::ZERO }
            });
            log.rounds.push(entries.collect());
        }
        let rows = rows(&log, &settings, &metric, &mut Random::new(1)).1;
        let kernel = &rows[2];
        assert_eq!(kernel.effect, Some(TrialEffect::Hurts), "{kernel:?}");
        let beyond = kernel.beyond_object.expect("it was judged against the object");
        assert_eq!(beyond.effect, TrialEffect::NoDifferenceShown, "{kernel:?}");
        assert!(rows[0].beyond_object.is_none() && rows[1].beyond_object.is_none());
        let smallest = kernel.smallest.unwrap();
        assert!((0.03..0.1).contains(&smallest), "the floor of the noise: {smallest}");
    }

    #[test]
    fn an_arm_that_failed_gets_no_word() {
        let metric = RunMetric::parse("wall").unwrap();
        let (mut log, settings) = log_of(&[[1.0, 2.0, 1.0]; 5]);
        log.arms[1].dropped = Some("died".to_owned());
        log.arms[1].failed = true;
        let (_, rows) = rows(&log, &settings, &metric, &mut Random::new(1));
        assert_eq!((rows[1].effect, rows[1].ratio.is_none()), (None, true));
        assert_eq!((rows[0].effect, rows[0].runs), (None, 10));
    }
}

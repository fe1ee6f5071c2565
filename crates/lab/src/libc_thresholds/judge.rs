//! Evaluates the runs under each setting: the effect at every size, and the recommended setting.

use serde::Serialize;
use thalweg_core::profile::Ratio;

use super::SIZES;
use crate::trial::TrialSetting;
use thalweg_measure::{
    experiment::JudgedLog,
    log::SampleLog,
    sample::SampleMetric,
    stats::{Random, RatioVerdict},
};

/// The effect of a setting at one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SizeEffect {
    /// Bytes per copy.
    pub size: u64,
    /// Time with the setting divided by time without it; below 1 the setting helps.
    #[serde(flatten)]
    pub ratio: Ratio,
    /// The relative difference between two runs of one setting.
    pub noise: f64,
    pub verdict: RatioVerdict,
}

impl SizeEffect {
    /// Returns `false` if the setting is slower with certainty, or if its ratio exceeds 1 by more than the noise.
    fn is_harmless(&self) -> bool {
        self.verdict != RatioVerdict::Slower && self.ratio.ratio <= 1.0 + self.noise
    }
}

/// A setting and its effects.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TriedSetting {
    /// The value of `GLIBC_TUNABLES`.
    pub tunables: String,
    pub effects: Vec<SizeEffect>,
    /// `true` if the setting helps at some size.
    pub helps: bool,
    /// `true` if the setting was not seen to hurt at any size.
    pub harmless: bool,
}

/// Evaluates the settings. Each size has a log. Its first arm (a compared variant) is the reference; the other arms are
/// the settings.
pub fn tried(
    settings: &[TrialSetting],
    logs: &[SampleLog],
    random: &mut Random,
) -> Vec<TriedSetting> {
    let against = || (0..=settings.len()).map(|arm| (arm > 0).then_some(0));
    let judged = logs.iter().map(|log| log.judge(against(), &SampleMetric::Wall, random));
    let judged: Vec<JudgedLog> = judged.collect();
    let mut all = Vec::with_capacity(settings.len());
    for (n, setting) in settings.iter().enumerate() {
        let shown = SIZES.into_iter().zip(&judged);
        let effects = shown.filter_map(|(size, judged)| {
            let shown = judged.outcomes[n + 1]?;
            Some(SizeEffect { size, ratio: shown.ratio, noise: shown.noise, verdict: shown.word() })
        });
        let effects: Vec<SizeEffect> = effects.collect();
        let helps = effects.iter().any(|effect| effect.verdict == RatioVerdict::Faster);
        // A size that was not measured might be the one that the setting slows down.
        let harmless = effects.len() == SIZES.len() && effects.iter().all(SizeEffect::is_harmless);
        all.push(TriedSetting { tunables: setting.name.clone(), effects, helps, harmless });
    }
    all
}

/// Returns, among the settings that help at some size and hurt at none, the one with the least time over all sizes.
pub fn best(tried: &[TriedSetting]) -> Option<&TriedSetting> {
    let good = tried.iter().filter(|one| one.helps && one.harmless);
    good.min_by(|a, b| over_all(a).total_cmp(&over_all(b)))
}

/// Returns the mean of the logarithms of the ratios.
fn over_all(tried: &TriedSetting) -> f64 {
    let sum: f64 = tried.effects.iter().map(|effect| effect.ratio.ratio.ln()).sum();
    sum / tried.effects.len().max(1) as f64
}

/// Returns the reason why no setting is recommended.
pub fn why_none(tried: &[TriedSetting], confirmed: &[TriedSetting]) -> String {
    if !confirmed.is_empty() {
        return "the improvement did not appear in a second measurement".to_owned();
    }
    let helped = tried.iter().filter(|one| one.helps).count();
    match helped {
        0 => "no other value was shown to help at any of the sizes".to_owned(),
        _ => format!(
            "{helped} of {} values help at some size, but each is slower at another",
            tried.len()
        ),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::trial::SettingKind;
    use std::time::Duration;
    use thalweg_measure::{log::SampleEntry, sample::Sample};

    /// Returns logs of a machine on which the second arm takes `times` the time of the first, for each size.
    pub fn logs(times: [f64; 5]) -> Vec<SampleLog> {
        let log = |times: f64| {
            let mut log = SampleLog::default();
            for name in ["as it is", "other"] {
                log.enter(name);
            }
            for round in 0..8_u32 {
                let wobble = 1.0 + f64::from(round % 3) * 0.004;
                let entry = |arm, seconds: f64| {
                    let wall = Duration::from_secs_f64(seconds);
                    SampleEntry { arm, sample: Sample { wall, ..Sample::default() }, cost: wall }
                };
                log.rounds.push(vec![
                    entry(0, 0.01),
                    entry(1, 0.01 * times * wobble),
                    entry(0, 0.01),
                ]);
            }
            log
        };
        times.map(log).into()
    }

    pub fn judged(name: &str, times: [f64; 5]) -> TriedSetting {
        let setting = TrialSetting {
            name: name.to_owned(),
            kind: SettingKind::Tunables { text: name.to_owned() },
        };
        tried(&[setting], &logs(times), &mut Random::new(1)).remove(0)
    }

    #[test]
    fn a_gain_in_one_band_does_not_buy_a_loss_in_another() {
        let good = judged("good", [0.6, 0.8, 1.0, 1.01, 1.0]);
        assert!(good.helps && good.harmless, "{good:?}");
        let dear = judged("dear", [0.3, 0.3, 1.9, 1.0, 1.0]);
        assert!(dear.helps && !dear.harmless);
        let idle = judged("idle", [1.0; 5]);
        assert!(!idle.helps && idle.harmless);
        let all =
            [dear.clone(), idle.clone(), good.clone(), judged("less", [0.9, 1.0, 1.0, 1.0, 1.0])];
        assert_eq!(best(&all).map(|one| one.tunables.as_str()), Some("good"));
        assert_eq!(best(&[dear.clone(), idle.clone()]), None);
        assert!(why_none(&[dear, idle.clone()], &[]).contains("1 of 2 values help at some size"));
        assert!(why_none(&[idle], &[]).contains("no other value"));
    }

    #[test]
    fn a_size_that_was_not_measured_is_not_called_harmless() {
        let mut logs = logs([0.5; 5]);
        logs[3].rounds.truncate(1);
        let setting = TrialSetting { name: "x".to_owned(), kind: SettingKind::Plain };
        let one = tried(&[setting], &logs, &mut Random::new(1)).remove(0);
        assert_eq!((one.effects.len(), one.harmless), (4, false));
    }
}

//! Detects signs that a sample includes the cost of other activity. Such samples are reported as disturbed, but kept.

mod others;

use serde::Serialize;
use std::collections::BTreeSet;

use crate::{
    log::{SampleEntry, SampleLog},
    sample::Sample,
    stats::median,
};

use others::Quiet;

/// A sign that a sample was disturbed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SampleMark {
    /// The index of the arm (a compared variant) in the log.
    pub arm: usize,
    /// The index of the round, from 0.
    pub round: usize,
    pub sign: Sign,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sign {
    /// Far more page faults than the other samples of the arm. For example, a `fork` before a sample makes all memory
    /// copy-on-write, and the next arm pays for the copies.
    Faults,
    /// The hypervisor gave CPU time of this machine to other guests.
    Stolen,
    /// The arm was preempted repeatedly.
    Preempted,
    /// The arm was ready to run but had to wait for a CPU.
    Waited,
    /// Other processes kept CPUs busy during the sample.
    Crowded,
    /// The sample is from the start of the session, and the cost at the end differs: the arm was not warm yet, or
    /// other activity began in between.
    Drift,
}

impl Sign {
    /// Returns `true` if other processes certainly caused the sign. A preemption does not count: another thread of
    /// the arm may have caused it.
    pub fn is_of_others(self) -> bool {
        matches!(self, Self::Stolen | Self::Waited | Self::Crowded)
    }
}

// Page faults per 10^9 bytes: one for each sixteen pages. With fewer, memory counts as warm.
const SOME_FAULTS: f64 = 1e9 / 4096.0 / 16.0;
/// A thread's stack and its first allocations cause up to this number of faults, independent of the bytes moved.
const FEW_FAULTS: f64 = 256.0;
const FAR: f64 = 10.0;
/// Minimum number of samples in a third of a session. With fewer, the costs of the first and the last third are
/// disjoint by chance in more than one of twenty sessions.
const LEAST_THIRD: usize = 4;
/// If the median costs of the first and the last third differ by at most this factor, they count as equal.
const FLAT: f64 = 1.25;

/// Returns every sign of disturbance in a log, in the order of the rounds. `warm` contains, for each arm with warm
/// memory, the bytes of one operation. If such an arm has page faults on a significant part of those bytes, its samples
/// are disturbed, even if all samples have these faults.
pub fn marks(log: &SampleLog, warm: &[Option<u64>]) -> Vec<SampleMark> {
    let usual: Vec<Usual> = (0..log.arms.len()).map(|arm| Usual::of(log, arm)).collect();
    let mut marks = Vec::new();
    for (round, entries) in log.rounds.iter().enumerate() {
        for SampleEntry { arm, sample, .. } in entries {
            let mut signs = usual[*arm].signs(sample);
            if let Some(Some(bytes)) = warm.get(*arm) {
                signs.retain(|(sign, _)| *sign != Sign::Faults);
                signs.extend(cold(sample, *bytes));
            }
            marks.extend(signs.into_iter().map(|(sign, text)| SampleMark {
                arm: *arm,
                round,
                sign,
                text,
            }));
        }
    }
    for (rounds, text) in others::crowded(log) {
        for round in rounds {
            let arms: BTreeSet<usize> = log.rounds[round].iter().map(|entry| entry.arm).collect();
            let sign = Sign::Crowded;
            marks.extend(arms.into_iter().map(|arm| SampleMark {
                arm,
                round,
                sign,
                text: text.clone(),
            }));
        }
    }
    for arm in 0..log.arms.len() {
        let Some(text) = drift(log, arm) else { continue };
        let rounds = rounds_of(log, arm);
        let first = rounds.iter().take(rounds.len() / 3);
        marks.extend(first.map(|round| SampleMark {
            arm,
            round: *round,
            sign: Sign::Drift,
            text: text.clone(),
        }));
    }
    marks.sort_by_key(|mark| mark.round);
    marks
}

/// Returns the fraction of samples that other processes disturbed. Two samples of an arm in one round count as one.
pub fn disturbed(log: &SampleLog) -> f64 {
    let samples = log
        .rounds
        .iter()
        .enumerate()
        .flat_map(|(round, entries)| entries.iter().map(move |entry| (entry.arm, round)));
    let samples: BTreeSet<(usize, usize)> = samples.collect();
    let marks = marks(log, &[]).into_iter().filter(|mark| mark.sign.is_of_others());
    let disturbed: BTreeSet<(usize, usize)> = marks.map(|mark| (mark.arm, mark.round)).collect();
    disturbed.len() as f64 / samples.len().max(1) as f64
}

/// Returns the rounds of an arm's samples, in the order in which they were taken.
fn rounds_of(log: &SampleLog, arm: usize) -> Vec<usize> {
    let rounds = log.rounds.iter().enumerate();
    let own = rounds.flat_map(|(round, entries)| {
        entries.iter().filter(move |entry| entry.arm == arm).map(move |_| round)
    });
    own.collect()
}

/// Returns a description if each sample of an arm's first third costs more than each sample of its last third, or each
/// costs less. With a constant cost, this practically never occurs by chance.
fn drift(log: &SampleLog, arm: usize) -> Option<String> {
    let costs: Vec<f64> = log.samples(arm).map(Sample::wall_seconds).collect();
    let third = costs.len() / 3;
    if third < LEAST_THIRD {
        return None;
    }
    let (first, last) = (&costs[..third], &costs[costs.len() - third..]);
    let least = |of: &[f64]| of.iter().copied().fold(f64::INFINITY, f64::min);
    let most = |of: &[f64]| of.iter().copied().fold(0.0, f64::max);
    let apart = least(first) > most(last) || most(first) < least(last);
    let ratio = median(first)? / median(last)?;
    let far = f64::max(ratio, 1.0 / ratio) > FLAT;
    (apart && far).then(|| {
        format!("drifts: the first third of the samples took {ratio:.2} times as long as the last")
    })
}

/// Returns a sign of disturbance if memory that should be warm was not: more than a sixteenth of the pages of one
/// operation faulted.
fn cold(sample: &Sample, bytes: u64) -> Option<(Sign, String)> {
    let count = sample.faults();
    let touched = count as f64 > FEW_FAULTS && count as f64 > bytes as f64 / 1e9 * SOME_FAULTS;
    touched.then(|| (Sign::Faults, format!("{count} faults on memory that was warm")))
}

/// Typical values of an arm's samples.
struct Usual {
    faults_per_gb: Option<f64>,
    preemptions: f64,
    quiet: Quiet,
}

impl Usual {
    fn of(log: &SampleLog, arm: usize) -> Self {
        let of =
            |what: &dyn Fn(&Sample) -> f64| median(&log.samples(arm).map(what).collect::<Vec<_>>());
        Self {
            faults_per_gb: of(&Sample::faults_per_gb),
            preemptions: of(&|s| s.involuntary_switches as f64).unwrap_or(0.0),
            quiet: Quiet::of(log, arm),
        }
    }

    fn signs(&self, sample: &Sample) -> Vec<(Sign, String)> {
        let mut signs = Vec::new();
        let (faults, usual) = (sample.faults_per_gb(), self.faults_per_gb.unwrap_or(0.0));
        let count = sample.faults() as f64;
        if faults > 2.0 * usual + SOME_FAULTS && count > FEW_FAULTS {
            let text = format!("{faults:.0} faults per GB instead of the usual {usual:.0}");
            signs.push((Sign::Faults, text));
        }
        if sample.stolen_ticks > 0 {
            signs.push((Sign::Stolen, format!("{} ticks stolen", sample.stolen_ticks)));
        }
        let taken = sample.involuntary_switches;
        if taken as f64 > 5.0 * self.preemptions + FAR {
            signs.push((Sign::Preempted, format!("preempted {taken} times")));
        }
        signs.extend(self.quiet.line(sample).map(|text| (Sign::Waited, text)));
        signs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        schedule::{Arm, Lineup, SampleFailure, SampledArm, Schedule},
        stats::Random,
    };
    use std::time::Duration;
    use thalweg_sys::usage::Usage;

    // Larger than any block that malloc reuses, so each allocation maps new pages.
    const LEN: usize = 33 << 20;

    /// Touches a buffer; in one sample the buffer is new, as after a fork.
    struct Touch {
        buffer: Vec<u8>,
        samples: usize,
        spoiled: Option<usize>,
    }

    impl Touch {
        fn sampled(spoiled: Option<usize>) -> SampledArm<'static> {
            SampledArm::once(Self { buffer: vec![1; LEN], samples: 0, spoiled })
        }
    }

    impl Arm for Touch {
        fn sample(&mut self, _repeats: u32) -> Result<Sample, SampleFailure> {
            self.samples += 1;
            if self.spoiled == Some(self.samples) {
                self.buffer = vec![0; LEN];
            }
            // The usage of this thread alone, because other tests of this process cause faults at the same time.
            let before = Usage::now_thread();
            self.buffer.iter_mut().step_by(4096).for_each(|byte| *byte = byte.wrapping_add(1));
            let minor_faults = Usage::now_thread().since(&before).minor_faults;
            Ok(Sample { minor_faults, bytes: LEN as u64, ..Sample::default() })
        }
    }

    fn log_of(mut arms: Vec<SampledArm<'_>>) -> Result<SampleLog, SampleFailure> {
        let mut log = SampleLog::default();
        let active = arms.iter().map(|_| log.enter("touch")).collect();
        let random = &mut Random::new(1);
        Schedule::fixed(6, &|| Ok(()), random).run(&mut arms, Lineup::of(active), &mut log)?;
        Ok(log)
    }

    #[test]
    fn memory_that_became_cold_under_way_is_marked_and_kept() {
        let log = log_of(vec![Touch::sampled(None), Touch::sampled(Some(4))]).unwrap();
        let marks = marks(&log, &[]);
        let faults: Vec<&SampleMark> = marks.iter().filter(|m| m.sign == Sign::Faults).collect();
        assert_eq!(faults.len(), 1, "{marks:?}");
        assert_eq!(faults[0].arm, 1);
        assert_eq!(log.rounds.len(), 6);
    }

    #[test]
    fn a_warm_arm_may_not_fault_at_all_even_if_it_always_does() {
        let log = log_of(vec![Touch::sampled(None), Touch::sampled(Some(4))]).unwrap();
        let warm = [None, Some(LEN as u64)];
        assert_eq!(marks(&log, &warm).len(), 1);
        let fault = Sample { minor_faults: 2000, bytes: LEN as u64, ..Sample::default() };
        let log = SampleLog {
            rounds: vec![vec![SampleEntry { arm: 0, sample: fault, cost: Duration::ZERO }]; 5],
            ..log
        };
        assert!(marks(&log, &[None]).is_empty());
        assert_eq!(marks(&log, &[Some(LEN as u64)]).len(), 5);
    }

    /// Returns a log of one arm whose samples take these times, in seconds.
    fn log_of_times(times: impl IntoIterator<Item = f64>) -> SampleLog {
        let entry = |seconds: f64| {
            let sample =
                Sample { wall: Duration::from_secs_f64(seconds), bytes: 1, ..Sample::default() };
            vec![SampleEntry { arm: 0, sample, cost: Duration::ZERO }]
        };
        let mut log =
            SampleLog { rounds: times.into_iter().map(entry).collect(), ..SampleLog::default() };
        log.enter("drifting");
        log
    }

    fn drifts(log: &SampleLog) -> usize {
        marks(log, &[]).iter().filter(|mark| mark.sign == Sign::Drift).count()
    }

    #[test]
    fn an_arm_that_begins_far_slower_than_it_ends_is_marked_where_it_begins() {
        let warming = (0..15).map(|round| if round < 5 { 0.3 } else { 0.08 });
        let log = log_of_times(warming);
        let found = marks(&log, &[]);
        assert_eq!(found.iter().map(|mark| mark.round).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert!(found[0].text.contains("took 3.75 times as long"), "{found:?}");
        // Load that begins in the middle and doubles the time of a sample is also detected.
        assert_eq!(
            drifts(&log_of_times((0..15).map(|round| if round < 8 { 0.02 } else { 0.04 }))),
            5
        );
        let few = (0..9).map(|round| if round < 3 { 0.3 } else { 0.08 });
        assert_eq!(drifts(&log_of_times(few)), 0, "three against three say nothing");
    }

    #[test]
    fn an_arm_that_only_scatters_is_hardly_ever_said_to_drift() {
        let random = &mut Random::new(7);
        let mut marked = 0;
        for _ in 0..1000 {
            let flat: Vec<f64> =
                (0..15).map(|_| 0.02 * (1.0 + random.below(1000) as f64 / 1000.0)).collect();
            marked += usize::from(drifts(&log_of_times(flat)) > 0);
        }
        assert!(marked < 30, "{marked} of 1000");
        // A step of 50 % is nearly always found if samples scatter by 10 %.
        let mut found = 0;
        for _ in 0..1000 {
            let step: Vec<f64> = (0..15)
                .map(|n| {
                    (if n < 5 { 1.5 } else { 1.0 }) * (1.0 + random.below(100) as f64 / 1000.0)
                })
                .collect();
            found += usize::from(drifts(&log_of_times(step)) > 0);
        }
        assert!(found > 900, "{found} of 1000");
    }

    #[test]
    fn stolen_ticks_and_preemption_show() {
        let usual = Usual {
            faults_per_gb: Some(0.0),
            preemptions: 1.0,
            ..Usual::of(&SampleLog::default(), 0)
        };
        let sample = Sample { stolen_ticks: 2, involuntary_switches: 40, ..Sample::default() };
        let signs: Vec<Sign> = usual.signs(&sample).into_iter().map(|(sign, _)| sign).collect();
        assert_eq!(signs, [Sign::Stolen, Sign::Preempted]);
        assert!(usual.signs(&Sample::default()).is_empty());
    }
}

//! Detects signs that other processes used the CPU or kept the machine busy during a sample. Each sample is compared
//! with the quiet part of the same session. A constant load therefore belongs to the conditions, while a load that
//! begins in the middle of a session is detected.

use std::ops::Range;

use crate::{
    busy::TICK,
    log::SampleLog,
    sample::{Sample, SampleMetric},
    stats::quantile,
};

/// The fraction of a session that counts as quiet.
const QUIET: f64 = 0.25;
/// A sample counts as disturbed only if it loses this fraction of its time in addition to twice the usual loss.
const LOST: f64 = 0.1;
/// A loss counts only if other processes ran for at least this fraction of it. Otherwise threads of one arm (a compared
/// variant) may have waited for each other.
const THEIRS: f64 = 0.5;
/// Minimum total duration of a window of rounds, in seconds. In a shorter window, a few clock ticks would decide the
/// result.
const WINDOW: f64 = 0.2;
/// A round is disturbed if other processes keep this many more CPUs busy than in the quiet part of the session.
const KEPT: f64 = 0.5;

/// The fractions of their time that samples of an arm usually lose, from the quiet part of a session.
pub(super) struct Quiet {
    waited: f64,
    pressure: f64,
}

impl Quiet {
    pub fn of(log: &SampleLog, arm: usize) -> Self {
        let least = |of: fn(&Sample) -> f64| {
            let shares: Vec<f64> = log.samples(arm).map(of).collect();
            quantile(&shares, QUIET).unwrap_or(0.0)
        };
        Self { waited: least(waited), pressure: least(pressure) }
    }

    /// Returns a description if a sample waited for a CPU. The wait of processes and threads that have exited is
    /// unknown, so the machine-wide pressure is also checked.
    pub fn line(&self, sample: &Sample) -> Option<String> {
        let percent = |share: f64| (share * 100.0).round();
        let said = |process: &str, share: f64, usual: f64| {
            let (share, usual) = (percent(share), percent(usual));
            format!(
                "{process} waited for a core {share} % of its time instead of the usual {usual} %"
            )
        };
        let theirs = not_its_own(sample) / sample.wall_seconds();
        let is_sign = |lost: f64, usual: f64| lost > 2.0 * usual + LOST && theirs >= THEIRS * lost;
        let (own, any) = (waited(sample), pressure(sample));
        if is_sign(own, self.waited) {
            Some(said("it", own, self.waited))
        } else {
            is_sign(any, self.pressure).then(|| said("a task on this machine", any, self.pressure))
        }
    }
}

fn waited(sample: &Sample) -> f64 {
    sample.waited.as_secs_f64() / sample.wall_seconds()
}

fn pressure(sample: &Sample) -> f64 {
    sample.pressure.cpu as f64 / 1e6 / sample.wall_seconds()
}

/// Returns the rounds in which other processes kept more CPUs busy than in the quiet part of the session.
pub(super) fn crowded(log: &SampleLog) -> Vec<(Range<usize>, String)> {
    let windows = windows(log);
    let shares: Vec<f64> = windows.iter().map(|(_, kept)| *kept).collect();
    let usual = quantile(&shares, QUIET).unwrap_or(0.0).max(0.0);
    let crowded = windows.into_iter().filter(|(_, kept)| *kept > usual + KEPT);
    let said = |kept: f64| {
        format!("other processes kept {kept:.1} cores busy instead of the usual {usual:.1}")
    };
    crowded.map(|(rounds, kept)| (rounds, said(kept))).collect()
}

/// Returns windows of rounds that are long enough, with the number of CPUs that other work kept busy during their
/// samples. The number may be slightly negative, because the kernel counts whole ticks.
fn windows(log: &SampleLog) -> Vec<(Range<usize>, f64)> {
    let mut windows: Vec<(Range<usize>, [f64; 2])> = Vec::new();
    for (round, entries) in log.rounds.iter().enumerate() {
        if windows.last().is_none_or(|(_, [seconds, _])| *seconds >= WINDOW) {
            windows.push((round..round, [0.0; 2]));
        }
        let Some((rounds, sums)) = windows.last_mut() else { continue };
        rounds.end = round + 1;
        for entry in entries {
            sums[0] += entry.sample.wall_seconds();
            sums[1] += not_its_own(&entry.sample);
        }
    }
    // The remaining rounds at the end are too short for a window of their own.
    if let Some((rest, [seconds, others])) = windows.pop_if(|(_, [seconds, _])| *seconds < WINDOW)
        && let Some((rounds, sums)) = windows.last_mut()
    {
        (rounds.end, sums[0], sums[1]) = (rest.end, sums[0] + seconds, sums[1] + others);
    }
    windows.into_iter().map(|(rounds, [seconds, others])| (rounds, others / seconds)).collect()
}

/// Returns the CPU seconds that the machine spent on other work or lost to the hypervisor.
fn not_its_own(sample: &Sample) -> f64 {
    sample.busy_ticks as f64 * TICK.as_secs_f64() - SampleMetric::Cpu.of(sample)
}

#[cfg(test)]
mod tests {
    use super::{super::*, *};
    use crate::stats::Random;
    use std::time::Duration;

    /// Returns a session of two arms whose samples each take 20 ms of one CPU. `plant` adds other activity to the
    /// samples of a round.
    fn session(rounds: usize, plant: impl Fn(usize, &mut Sample)) -> SampleLog {
        let mut log = SampleLog::default();
        log.enter("a");
        log.enter("b");
        for round in 0..rounds {
            let taken = |arm: usize| {
                let wall = Duration::from_millis(20);
                let mut sample =
                    Sample { wall, user: wall, busy_ticks: 2, bytes: 1, ..Sample::default() };
                plant(round, &mut sample);
                SampleEntry { arm, sample, cost: wall }
            };
            log.rounds.push(vec![taken(0), taken(1), taken(round % 2)]);
        }
        log
    }

    fn marked(log: &SampleLog, sign: Sign) -> Vec<usize> {
        let mut rounds: Vec<usize> = marks(log, &[])
            .iter()
            .filter(|mark| mark.sign == sign)
            .map(|mark| mark.round)
            .collect();
        rounds.dedup();
        rounds
    }

    fn milliseconds(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn load_that_begins_in_the_middle_marks_the_samples_it_meets_and_no_other() {
        for begins in [5, 8, 14] {
            let loaded: Vec<usize> = (begins..16).collect();
            let log = session(16, |round, sample| {
                if round >= begins {
                    (sample.waited, sample.user) = (milliseconds(12), milliseconds(8));
                }
            });
            assert_eq!(marked(&log, Sign::Waited), loaded, "its own threads waited");
            let log = session(16, |round, sample| {
                if round >= begins {
                    (sample.pressure.cpu, sample.user) = (9_000, milliseconds(10));
                }
            });
            assert_eq!(marked(&log, Sign::Waited), loaded, "a process that has ended waited");
            assert!(marks(&log, &[]).iter().all(|mark| mark.sign.is_of_others()));
        }
        // A round takes 60 ms here, so a window has four rounds. The load runs on the other CPU and does not slow down
        // the samples.
        let log = session(16, |round, sample| sample.busy_ticks += if round >= 8 { 2 } else { 0 });
        assert_eq!(marked(&log, Sign::Crowded), (8..16).collect::<Vec<_>>());
        let found = marks(&log, &[]);
        assert_eq!(found[0].text, "other processes kept 1.0 cores busy instead of the usual 0.0");
    }

    #[test]
    fn what_is_the_same_throughout_is_no_sign() {
        let log = session(16, |_, sample| {
            sample.waited = milliseconds(9);
            sample.pressure.cpu = 14_000;
            sample.busy_ticks += 2;
        });
        assert!(marks(&log, &[]).is_empty(), "{:?}", marks(&log, &[]));
        // In some samples, one of two threads of the arm waits for the other. No other process ran, so no sample is
        // disturbed.
        let log = session(16, |round, sample| {
            if round % 2 == 1 {
                (sample.waited, sample.pressure.cpu) = (milliseconds(12), 12_000);
            }
        });
        assert!(marks(&log, &[]).is_empty(), "{:?}", marks(&log, &[]));
        // A machine on which /proc/stat cannot be read: all counters are 0.
        assert!(marks(&session(16, |_, sample| sample.busy_ticks = 0), &[]).is_empty());
    }

    #[test]
    fn ticks_that_fall_by_chance_hardly_ever_mark_a_quiet_session() {
        let random = &mut Random::new(3);
        let (mut quiet, mut loaded) = (0, 0);
        for _ in 0..500 {
            let ticks: Vec<Vec<u64>> =
                (0..15).map(|_| (0..3).map(|_| 1 + random.below(3) as u64).collect()).collect();
            let of = |load: u64| {
                let mut log = session(15, |_, _| {});
                for (round, entries) in log.rounds.iter_mut().enumerate() {
                    for (entry, ticks) in entries.iter_mut().zip(&ticks[round]) {
                        // The sample itself used two ticks; the kernel counts one more or less.
                        let load = if round >= 8 { load } else { 0 };
                        entry.sample.busy_ticks = ticks + load;
                    }
                }
                marked(&log, Sign::Crowded)
            };
            quiet += usize::from(!of(0).is_empty());
            loaded += usize::from(of(2).iter().any(|round| *round >= 12));
        }
        assert!(quiet <= 25 && loaded >= 450, "{quiet} quiet and {loaded} loaded ones of 500");
    }
}

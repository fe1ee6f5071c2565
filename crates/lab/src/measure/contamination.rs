//! Signs that a sample measured something besides its arm. Such samples are marked and kept.

use serde::Serialize;

use crate::measure::{
    log::{Entry, Log},
    sample::Sample,
    stats::median,
};

/// A sign on a sample.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mark {
    /// The arm's number in the log.
    pub arm: usize,
    /// The round, from 0.
    pub round: usize,
    pub sign: Sign,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sign {
    /// Far more page faults than the arm's other samples. One `fork` before a sample makes all memory
    /// copy-on-write, and the next arm pays for it.
    Faults,
    /// The hypervisor gave our processor to others.
    Stolen,
    /// Something else took the processor again and again.
    Preempted,
}

// Below one fault per sixteen pages nothing that was warm has been touched anew.
const SOME_FAULTS: f64 = 1e9 / 4096.0 / 16.0;
/// So many are a thread's stack and its first allocations, whatever was moved.
const FEW_FAULTS: f64 = 256.0;
const FAR: f64 = 10.0;

/// Every sign in a log, in the order of its rounds. `warm` says of an arm how many bytes one operation of
/// it has if its memory is meant to be warm: then any faults on a part of it worth mentioning are a sign,
/// usual or not.
pub fn marks(log: &Log, warm: &[Option<u64>]) -> Vec<Mark> {
    let usual: Vec<Usual> = (0..log.arms.len()).map(|arm| Usual::of(log, arm)).collect();
    let mut marks = Vec::new();
    for (round, entries) in log.rounds.iter().enumerate() {
        for Entry { arm, sample, .. } in entries {
            let mut signs = usual[*arm].signs(sample);
            if let Some(Some(bytes)) = warm.get(*arm) {
                signs.retain(|(sign, _)| *sign != Sign::Faults);
                signs.extend(cold(sample, *bytes));
            }
            marks.extend(signs.into_iter().map(|(sign, text)| Mark {
                arm: *arm,
                round,
                sign,
                text,
            }));
        }
    }
    marks
}

/// Whether memory that should have been warm was not: a sixteenth of one operation's pages.
fn cold(sample: &Sample, bytes: u64) -> Option<(Sign, String)> {
    let count = sample.faults();
    let touched = count as f64 > FEW_FAULTS && count as f64 > bytes as f64 / 1e9 * SOME_FAULTS;
    touched.then(|| (Sign::Faults, format!("{count} faults on memory that was warm")))
}

/// What an arm's samples are like as a rule.
struct Usual {
    faults_per_gb: Option<f64>,
    preemptions: f64,
}

impl Usual {
    fn of(log: &Log, arm: usize) -> Self {
        let of =
            |what: &dyn Fn(&Sample) -> f64| median(&log.samples(arm).map(what).collect::<Vec<_>>());
        Self {
            faults_per_gb: of(&Sample::faults_per_gb),
            preemptions: of(&|s| s.involuntary_switches as f64).unwrap_or(0.0),
        }
    }

    fn signs(&self, sample: &Sample) -> Vec<(Sign, String)> {
        let mut signs = Vec::new();
        let (faults, usual) = (sample.faults_per_gb(), self.faults_per_gb.unwrap_or(0.0));
        let count = sample.faults() as f64;
        if faults > 2.0 * usual + SOME_FAULTS && count > FEW_FAULTS {
            let text = format!("{faults:.0} faults per GB where {usual:.0} are usual");
            signs.push((Sign::Faults, text));
        }
        if sample.stolen_ticks > 0 {
            signs.push((Sign::Stolen, format!("{} ticks stolen", sample.stolen_ticks)));
        }
        let taken = sample.involuntary_switches;
        if taken as f64 > 5.0 * self.preemptions + FAR {
            signs.push((Sign::Preempted, format!("preempted {taken} times")));
        }
        signs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{
        schedule::{Arm, Failure, Lineup, Sampled, Schedule},
        stats::Random,
    };
    use std::time::Duration;
    use thalweg_sys::usage::Usage;

    // Beyond what malloc ever takes from memory that was touched before: it is mapped anew each time.
    const LEN: usize = 33 << 20;

    /// Touches a buffer; in one sample the buffer is new, as after a fork.
    struct Touch {
        buffer: Vec<u8>,
        samples: usize,
        spoiled: Option<usize>,
    }

    impl Touch {
        fn sampled(spoiled: Option<usize>) -> Sampled<'static> {
            Sampled::once(Self { buffer: vec![1; LEN], samples: 0, spoiled })
        }
    }

    impl Arm for Touch {
        fn sample(&mut self, _repeats: u32) -> Result<Sample, Failure> {
            self.samples += 1;
            if self.spoiled == Some(self.samples) {
                self.buffer = vec![0; LEN];
            }
            // The thread's, for other tests of this process fault meanwhile.
            let before = Usage::now_thread();
            self.buffer.iter_mut().step_by(4096).for_each(|byte| *byte = byte.wrapping_add(1));
            let minor_faults = Usage::now_thread().since(&before).minor_faults;
            Ok(Sample { minor_faults, bytes: LEN as u64, ..Sample::default() })
        }
    }

    fn log_of(mut arms: Vec<Sampled<'_>>) -> Result<Log, Failure> {
        let mut log = Log::default();
        let active = arms.iter().map(|_| log.enter("touch")).collect();
        let random = &mut Random::new(1);
        Schedule::fixed(6, &|| Ok(()), random).run(&mut arms, Lineup::of(active), &mut log)?;
        Ok(log)
    }

    #[test]
    fn memory_that_became_cold_under_way_is_marked_and_kept() {
        let log = log_of(vec![Touch::sampled(None), Touch::sampled(Some(4))]).unwrap();
        let marks = marks(&log, &[]);
        let faults: Vec<&Mark> = marks.iter().filter(|m| m.sign == Sign::Faults).collect();
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
        let log = Log {
            rounds: vec![vec![Entry { arm: 0, sample: fault, cost: Duration::ZERO }]; 5],
            ..log
        };
        assert!(marks(&log, &[None]).is_empty());
        assert_eq!(marks(&log, &[Some(LEN as u64)]).len(), 5);
    }

    #[test]
    fn stolen_ticks_and_preemption_show() {
        let usual = Usual { faults_per_gb: Some(0.0), preemptions: 1.0 };
        let sample = Sample { stolen_ticks: 2, involuntary_switches: 40, ..Sample::default() };
        let signs: Vec<Sign> = usual.signs(&sample).into_iter().map(|(sign, _)| sign).collect();
        assert_eq!(signs, [Sign::Stolen, Sign::Preempted]);
        assert!(usual.signs(&Sample::default()).is_empty());
    }
}

//! The scouting session: tries every tuning of every mechanism and picks those worth measuring. Its samples are not
//! used otherwise, because a tuning that was picked for looking good must be measured again.

use thalweg_core::{Knob, Unit, profile::LEAST_NOISE};

use super::job::{ContestLog, TunedMethod};
use crate::{outcome::PerByte, sample::SampleMetric};

/// Number of rounds. A few are enough to show a large effect of a tuning.
pub(super) const ROUNDS: usize = 4;
/// Number of tunings that are measured in addition to the defaults.
const MOST_PICKED: usize = 4;
/// A tuning that is slower than the best mechanism by this factor is useless.
const IN_REACH: f64 = 1.25;

/// Returns a few of the sizes: small, middle and large.
pub(super) fn sizes(grid: &[u64]) -> Vec<u64> {
    let at = |share: usize| grid.get(grid.len() * share / 8).copied();
    let mut sizes: Vec<u64> = [2, 4, 6].into_iter().filter_map(at).collect();
    sizes.dedup();
    sizes
}

/// Returns the tunings that at some size were faster than their mechanism's default and near the best mechanism,
/// largest gain first.
pub(super) fn pick(log: &ContestLog) -> Vec<TunedMethod> {
    let mut gains: Vec<(f64, TunedMethod)> = Vec::new();
    let Some(keys) = &log.ends else { return Vec::new() };
    let contest = keys.contest();
    for size in &log.sizes {
        let times = |arm, other| size.log.median_ratio(arm, other, &PerByte(SampleMetric::Wall));
        let best = (0..size.ways.len()).filter_map(|arm| times(arm, 0));
        let Some(best) = best.min_by(f64::total_cmp) else { continue };
        let matters = |way: &TunedMethod| is_other_work(way, contest.knobs(&way.name), size.size);
        let tuned = size.ways.iter().enumerate().filter(|(_, way)| matters(way));
        for (arm, way) in tuned {
            let gain =
                size.arm(&TunedMethod::plain(&way.name)).and_then(|default| times(arm, default));
            let in_reach = times(arm, 0).is_some_and(|ratio| ratio <= best * IN_REACH);
            match gain.filter(|gain| in_reach && *gain < 1.0 - LEAST_NOISE) {
                Some(gain) if !log.unfit.contains_key(way) => gains.push((gain, way.clone())),
                _ => {}
            }
        }
    }
    gains.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let mut picked: Vec<TunedMethod> = Vec::new();
    for (_, way) in gains {
        if !picked.contains(&way) && picked.len() < MOST_PICKED {
            picked.push(way);
        }
    }
    picked
}

/// Returns `true` if a tuning can make a difference at this size. Two buffer sizes that both hold the whole transfer
/// cannot.
fn is_other_work(way: &TunedMethod, knobs: &[Knob], size: u64) -> bool {
    way.tuning.iter().any(|(name, value)| {
        let knob = knobs.iter().find(|knob| knob.name == name);
        knob.is_some_and(|knob| knob.unit != Unit::Bytes || value.min(knob.values[0]) < size)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_core::Tuning;

    #[test]
    fn two_buffers_that_hold_everything_are_no_choice() {
        let tuned =
            |value| TunedMethod { name: "read-write".into(), tuning: Tuning::of("buffer", value) };
        let contest = "file:file".parse::<super::super::EndPair>().unwrap().contest();
        let matters = |way: &TunedMethod, size| is_other_work(way, contest.knobs(&way.name), size);
        assert!(!matters(&tuned(1 << 20), 4096));
        assert!(matters(&tuned(1 << 20), 16 << 20));
        assert!(!matters(&TunedMethod::plain("read-write"), 16 << 20));
    }

    #[test]
    fn a_few_sizes_stand_for_the_grid() {
        assert_eq!(sizes(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]), [3, 6, 8]);
        assert_eq!(sizes(&[7]), [7]);
    }
}

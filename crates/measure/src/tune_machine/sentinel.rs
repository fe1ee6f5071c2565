//! The sentinel: measures three cells (measurements) of a profile again in about 50 ms. The sentinel detects a change
//! of the machine that no key of the profile shows.

use serde::Serialize;
use std::{path::Path, time::Duration};
use thalweg_core::{
    Profile,
    profile::{COLD, Cell, FILL, LEAST_NOISE, Load, REPEATED, Ratio, SinkState},
};

use super::{
    job::{ContestJob, EndKeys, TunedMethod, WantedMethods},
    pair::{EndKind, EndPair},
    runner::{InProcess, Runner},
};
use crate::{StopCheck, outcome::PerByte, sample::SampleMetric, stats::Random};

const CELLS: usize = 3;
const ROUNDS: usize = 6;
const FOR_EACH: Duration = Duration::from_millis(15);
/// A cell qualifies only if one transfer takes at most this long.
const LONGEST: Duration = Duration::from_micros(500);
/// A cell qualifies only up to this size in bytes, because a damaged profile may name any size and duration.
const LARGEST: u64 = 64 << 20;

/// One cell, with its ratio in the profile and its ratio now.
#[derive(Clone, Debug, Serialize)]
pub struct SentinelLook {
    /// The pair, as on the command line.
    pub pair: String,
    pub way: TunedMethod,
    pub size: u64,
    pub was: Ratio,
    /// The current ratio, from one short burst.
    pub is: Ratio,
    /// `true` if the difference exceeds twice the noise and the intervals do not overlap.
    pub drifted: bool,
}

/// Measures a few cells again, with files in `folder` or in memory. Skips cells with ends that cannot be created
/// there. An empty result means that no cell could be measured.
pub fn look(profile: &Profile, folder: &Path, stop: &StopCheck<'_>) -> Vec<SentinelLook> {
    let mut looks: Vec<SentinelLook> = Vec::new();
    let places = [folder.to_owned(), "/dev/shm".into()];
    let mut cells: Vec<&Cell> = profile.cells.iter().filter(|cell| is_quick(cell)).collect();
    // Cells with the narrowest intervals first.
    cells.sort_by(|a, b| (a.wall.hi / a.wall.lo).total_cmp(&(b.wall.hi / b.wall.lo)));
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for cell in cells {
        let key = (cell.source.as_str(), cell.sink.as_str());
        if seen.contains(&key) || looks.len() == CELLS || stop().is_err() {
            continue;
        }
        let made = places.iter().find_map(|place| ends_of(cell, place));
        let Some(ends) = made else { continue };
        seen.push(key);
        looks.extend(look_again(cell, &ends, stop));
    }
    looks
}

/// Returns `true` if the cell is quick to measure and compares two mechanisms.
fn is_quick(cell: &Cell) -> bool {
    let took = Duration::try_from_secs_f64(cell.ns_per_byte * cell.size as f64 / 1e9);
    let reference = EndKeys::of(cell).contest().is_reference(&cell.mechanism);
    cell.load == Load::Idle
        && cell.sink_state == SinkState::Fresh
        && !(reference && cell.tuning.is_default())
        && took.is_ok_and(|took| took < LONGEST)
        && cell.size <= LARGEST
}

/// Returns the ends of a cell, if they can be created with files in `place`.
fn ends_of(cell: &Cell, place: &Path) -> Option<EndPair> {
    let end = |key: &str| match key {
        "memory" => Some(EndKind::Memory),
        COLD => Some(EndKind::Cold),
        REPEATED => Some(EndKind::Repeated),
        FILL => Some(EndKind::Fill),
        "pipe" => Some(EndKind::Pipe),
        "socket:unix" => Some(EndKind::Unix),
        "socket:inet" => Some(EndKind::Tcp),
        file if file.starts_with("file:") => Some(EndKind::File(place.to_owned())),
        _ => None,
    };
    let ends = EndPair { source: end(&cell.source)?, sink: end(&cell.sink)? };
    (ends.contest().keys(&ends).ok()? == EndKeys::of(cell)).then_some(ends)
}

fn look_again(cell: &Cell, ends: &EndPair, stop: &StopCheck<'_>) -> Option<SentinelLook> {
    let way = TunedMethod { name: cell.mechanism.clone(), tuning: cell.tuning.clone() };
    let job = ContestJob {
        ends: ends.clone(),
        load: Load::Idle,
        sink_state: SinkState::Fresh,
        sizes: vec![cell.size],
        ways: WantedMethods::Only(vec![way.clone()]),
        rounds: ROUNDS,
        budget: FOR_EACH,
        seed: 1,
        exact: false,
    };
    let session = InProcess.run(&job, stop);
    let size = session.sizes.first()?;
    let is =
        size.log.ratio(size.arm(&way)?, 0, &PerByte(SampleMetric::Wall), &mut Random::new(1))?;
    Some(SentinelLook {
        pair: ends.to_string(),
        way,
        size: cell.size,
        was: cell.wall,
        is,
        drifted: has_drifted(&cell.wall, &is, cell.noise),
    })
}

fn has_drifted(was: &Ratio, is: &Ratio, noise: f64) -> bool {
    let apart = is.hi < was.lo || is.lo > was.hi;
    let limit = 2.0 * (1.0 + noise.max(LEAST_NOISE)).ln();
    apart && (is.ratio / was.ratio).ln().abs() > limit
}

#[cfg(test)]
mod tests {
    use super::{super::advice::tests::cell, *};

    #[test]
    fn drift_is_more_than_twice_the_noise_and_more_than_the_intervals() {
        let ratio = |ratio: f64, half: f64| Ratio { ratio, lo: ratio - half, hi: ratio + half };
        let was = ratio(0.8, 0.02);
        assert!(has_drifted(&was, &ratio(1.2, 0.1), 0.05));
        assert!(!has_drifted(&was, &ratio(1.2, 0.5), 0.05), "nobody can tell");
        assert!(!has_drifted(&was, &ratio(0.85, 0.01), 0.05), "within the noise");
        assert!(has_drifted(&was, &ratio(0.85, 0.01), 0.0), "the floor is three percent");
        assert!(has_drifted(&was, &ratio(0.4, 0.01), 0.05));
    }

    #[test]
    fn a_damaged_cell_of_any_size_is_not_measured() {
        let mut cell = cell(["pipe", "pipe"], "splice", (4096, 0.5, 0.1));
        cell.ns_per_byte = 1e-9;
        assert!(is_quick(&cell));
        cell.size = 1 << 62;
        assert!(!is_quick(&cell));
    }
}

//! The extent of a survey: sizes, sessions, rounds and time.

use std::time::Duration;
use thalweg_core::profile::Load;

use super::pair::EndPair;
use crate::{preset::Preset, processors::Processors};

/// A preset for the extent of a survey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    Quick,
    /// The default: more sizes, sessions and rounds.
    Standard,
}

impl Depth {
    /// Returns the study preset of the same name: the number of sessions, and the maximum number of rounds for each
    /// size.
    pub fn preset(self) -> Preset {
        match self {
            Self::Quick => Preset::QUICK,
            Self::Standard => Preset::STANDARD,
        }
    }

    /// Returns the default wall time for all surveys.
    pub fn budget(self) -> Duration {
        match self {
            Self::Quick => Duration::from_secs(2 * 60),
            Self::Standard => Duration::from_secs(10 * 60),
        }
    }

    /// Returns the bytes per transfer between these ends, evenly spaced on a logarithmic scale, with more sizes in
    /// the range where mechanisms differ most.
    pub fn sizes(self, ends: &EndPair) -> Vec<u64> {
        let mut sizes = ends.contest().sizes(self);
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// Returns an additional size that needs more time than the preset's default budget, if the budget is ample. This
    /// size is measured last, so it takes no time from the other sizes.
    pub fn largest(self, ends: &EndPair, budget: Duration) -> Option<u64> {
        const LARGEST: u64 = 1 << 30;
        let is_ample = self == Self::Standard && budget >= AMPLE * self.budget();
        let is_new = self.sizes(ends).last().is_none_or(|last| *last < LARGEST);
        (is_new && is_ample).then_some(LARGEST)
    }
}

/// Minimum multiple of the preset's budget at which the largest size is measured too.
const AMPLE: u32 = 3;

/// Returns the number of CPUs that a load can keep busy.
pub fn busy_cores() -> usize {
    Processors::of_this_thread().map_or(0, |here| here.spare())
}

/// Returns the loads that can be created on this machine: with a single core, no other core can be kept busy.
pub fn loads() -> &'static [Load] {
    if busy_cores() > 0 { &[Load::Idle, Load::Loaded] } else { &[Load::Idle] }
}

/// Returns one random size in each gap of a grid, never a power of two. `unit` returns random numbers in 0..1.
pub fn between(sizes: &[u64], unit: &mut dyn FnMut() -> f64) -> Vec<u64> {
    let gaps = sizes.windows(2).map(|gap| {
        let share = 0.25 + 0.5 * unit();
        let size = (gap[0] as f64).powf(1.0 - share) * (gap[1] as f64).powf(share);
        (size as u64 | 1).clamp(gap[0] + 1, gap[1])
    });
    gaps.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_rise_from_a_page_or_a_vector() {
        for depth in [Depth::Quick, Depth::Standard] {
            for (ends, least) in [
                ("file:pipe", 4096),
                ("memory:memory", 16),
                ("fill:memory", 16),
                ("process:process", 64 << 10),
            ] {
                let sizes = depth.sizes(&ends.parse().unwrap());
                assert!(sizes.len() >= 5 && sizes[0] == least && sizes.is_sorted());
            }
        }
        let most = Depth::Standard.sizes(&"file:file".parse().unwrap());
        assert_eq!(most.last(), Some(&(1 << 30)));
    }

    #[test]
    fn the_largest_size_needs_a_larger_budget() {
        let (usual, ample) = (Depth::Standard.budget(), Depth::Standard.budget() * AMPLE);
        for ends in ["memory:memory", "fill:memory", "process:process", "process:huge"] {
            let ends = ends.parse().unwrap();
            assert_eq!(Depth::Standard.largest(&ends, usual), None);
            let largest = Depth::Standard.largest(&ends, ample);
            assert_eq!(largest, Some(1 << 30));
            assert!(Depth::Standard.sizes(&ends).last() < largest.as_ref());
            assert_eq!(Depth::Quick.largest(&ends, ample), None);
        }
        // The sizes of this pair already reach the largest size.
        assert_eq!(Depth::Standard.largest(&"file:pipe".parse().unwrap(), ample), None);
    }

    #[test]
    fn unseen_sizes_lie_between_the_seen_ones() {
        let grid = [4096, 16384, 65536];
        for unit in [0.0, 0.3, 0.999] {
            let unseen = between(&grid, &mut || unit);
            assert_eq!(unseen.len(), 2);
            for (n, size) in unseen.iter().enumerate() {
                assert!(grid[n] < *size && *size < grid[n + 1], "{unseen:?}");
            }
        }
    }
}

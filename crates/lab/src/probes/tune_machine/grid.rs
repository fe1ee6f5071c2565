//! How much is measured: sizes, sessions, rounds, and the time it may take.

use std::time::Duration;
use thalweg_core::profile::Load;

use super::pair::Ends;
use crate::study::{pin::Processors, preset::Preset};

/// A preset of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    Quick,
    /// What a profile should rest on.
    Standard,
}

impl Depth {
    /// As many sessions as a study of that name, and at most as many rounds in each, for each size.
    pub fn preset(self) -> Preset {
        match self {
            Self::Quick => Preset::QUICK,
            Self::Standard => Preset::STANDARD,
        }
    }

    /// Time for all of it, unless another is given.
    pub fn budget(self) -> Duration {
        match self {
            Self::Quick => Duration::from_secs(2 * 60),
            Self::Standard => Duration::from_secs(10 * 60),
        }
    }

    /// Bytes per transfer between these ends, evenly spaced in logarithms; closer where ways differ
    /// most.
    pub fn sizes(self, ends: &Ends) -> Vec<u64> {
        let mut sizes = ends.contest().sizes(self);
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// The size that takes more than the time that a preset gives: for whoever gives much more of it. It
    /// is behind all others, and they get as much time as without it by the preset's own budget.
    pub fn largest(self, ends: &Ends, budget: Duration) -> Option<u64> {
        const LARGEST: u64 = 1 << 30;
        let is_ample = self == Self::Standard && budget >= AMPLE * self.budget();
        let is_new = self.sizes(ends).last().is_none_or(|last| *last < LARGEST);
        (is_new && is_ample).then_some(LARGEST)
    }
}

/// So many times a preset's budget are much time.
const AMPLE: u32 = 3;

/// The processors that can be kept busy beside us.
pub fn busy_cores() -> usize {
    Processors::of_this_thread().map_or(0, |here| here.spare())
}

/// The loads that can be made here: on one core nothing can be kept busy beside us.
pub fn loads() -> &'static [Load] {
    if busy_cores() > 0 { &[Load::Idle, Load::Loaded] } else { &[Load::Idle] }
}

/// A size in each gap of a grid that the grid does not have: no power of two, drawn by `unit`,
/// which gives numbers in 0..1.
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
    fn the_largest_size_is_for_those_who_give_it_the_time() {
        let (usual, ample) = (Depth::Standard.budget(), Depth::Standard.budget() * AMPLE);
        for ends in ["memory:memory", "fill:memory", "process:process", "process:huge"] {
            let ends = ends.parse().unwrap();
            assert_eq!(Depth::Standard.largest(&ends, usual), None);
            let largest = Depth::Standard.largest(&ends, ample);
            assert_eq!(largest, Some(1 << 30));
            assert!(Depth::Standard.sizes(&ends).last() < largest.as_ref());
            assert_eq!(Depth::Quick.largest(&ends, ample), None);
        }
        // Its grid goes that far as it is.
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

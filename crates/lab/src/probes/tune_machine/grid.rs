//! How much is measured: sizes, sessions, rounds, and the time it may take.

use std::time::Duration;
use thalweg_core::profile::{Load, SinkState};
use thalweg_sys::host::caches;

use super::pair::{EndKind, Ends, Held};
use crate::study::preset::Preset;

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

    /// Time for all of it, unless somebody says otherwise.
    pub fn budget(self) -> Duration {
        match self {
            Self::Quick => Duration::from_secs(2 * 60),
            Self::Standard => Duration::from_secs(10 * 60),
        }
    }

    /// Bytes per transfer between these ends, evenly spaced in logarithms; between memory closer where
    /// caches end, since kernels differ most there.
    pub fn sizes(self, ends: &Ends) -> Vec<u64> {
        let (least, most, step) = match (ends.are_memory(), ends.are_processes(), self) {
            // Most calls are for a few bytes; and a step of two octaves is what a band is drawn from.
            (true, _, Self::Quick) => (4, 26, 2),
            (true, _, Self::Standard) => (4, 28, 2),
            // What is smaller goes as a message; what is larger takes more memory than many have.
            (_, true, Self::Quick) => (16, 28, 3),
            (_, true, Self::Standard) => (16, 28, 2),
            (_, _, Self::Quick) => (12, 27, 3),
            (_, _, Self::Standard) => (12, 30, 2),
        };
        let mut sizes: Vec<u64> = (least..=most).step_by(step).map(|power| 1 << power).collect();
        if ends.are_memory() && self == Self::Standard {
            let cache = caches().into_iter().map(|cache| cache.bytes).max();
            let measured = 1 << least..1 << most;
            sizes
                .extend(cache.into_iter().flat_map(leaving).filter(|size| measured.contains(size)));
        }
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// The size that takes more than the time that a preset gives: for whoever gives much more of it. It
    /// is behind all others, and they get as much time as without it by the preset's own budget.
    pub fn largest(self, ends: &Ends, budget: Duration) -> Option<u64> {
        let left_out = ends.are_memory() || ends.are_processes();
        let is_ample = self == Self::Standard && budget >= AMPLE * self.budget();
        (left_out && is_ample).then_some(1 << 30)
    }

    /// The states of the sink that mean something between these ends.
    pub fn sink_states(self, ends: &Ends) -> &'static [SinkState] {
        match (&ends.sink, self) {
            (EndKind::Process(Held::Plain), _) => &[SinkState::Resident, SinkState::Fresh],
            (EndKind::File(_), Self::Standard) => &[SinkState::Fresh, SinkState::Resident],
            _ => &[SinkState::Fresh],
        }
    }
}

/// So many times a preset's budget are much time.
const AMPLE: u32 = 3;

/// Where copies leave a cache of so many bytes: from an eighth of it to twice as much, in half octaves.
fn leaving(cache: u64) -> impl Iterator<Item = u64> {
    (-6..=2).map(move |halves| (cache as f64 * (f64::from(halves) / 2.0).exp2()) as u64)
}

/// The loads that can be made here: on one core nothing can be kept busy beside us.
pub fn loads() -> &'static [Load] {
    if super::runner::busy_cores() > 0 { &[Load::Idle, Load::Loaded] } else { &[Load::Idle] }
}

/// Those of these under which a pair is measured: two processes that move one buffer are busy on two
/// processors, and nobody asks how they do on one.
pub(super) fn loads_of(ends: &Ends, loads: &[Load]) -> Vec<Load> {
    let counts = |load: &&Load| !ends.are_processes() || **load == Load::Idle;
    loads.iter().filter(counts).copied().collect()
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
    fn sizes_are_closer_where_a_copy_leaves_the_cache() {
        let sizes: Vec<u64> = leaving(32 << 20).collect();
        assert_eq!((sizes[0], sizes[6], sizes[8]), (4 << 20, 32 << 20, 64 << 20));
        assert!(sizes.windows(2).all(|two| two[0] < two[1] && two[1] < two[0] * 3 / 2));
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

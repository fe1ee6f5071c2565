//! How much is measured: sizes, sessions, rounds, and the time it may take.

use std::time::Duration;
use thalweg_core::profile::{Load, SinkState};

use super::pair::{EndKind, Ends};

/// A preset of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// A first look.
    Quick,
    /// What a profile should rest on.
    Standard,
}

impl Depth {
    /// Sessions of each survey.
    pub fn sessions(self) -> usize {
        match self {
            Self::Quick => 3,
            Self::Standard => 6,
        }
    }

    /// Most rounds in each session, for each size.
    pub fn rounds(self) -> usize {
        match self {
            Self::Quick => 10,
            Self::Standard => 15,
        }
    }

    /// Time for all of it, unless somebody says otherwise.
    pub fn budget(self) -> Duration {
        match self {
            Self::Quick => Duration::from_secs(80),
            Self::Standard => Duration::from_secs(7 * 60),
        }
    }

    /// Bytes per transfer between these ends, evenly spaced in logarithms.
    pub fn sizes(self, ends: &Ends) -> Vec<u64> {
        let (least, most, step) = match (ends.are_memory(), self) {
            // Most calls are for a few bytes; and a step of two octaves is what a band is drawn from.
            (true, Self::Quick) => (4, 26, 2),
            (true, Self::Standard) => (4, 28, 2),
            (false, Self::Quick) => (12, 27, 3),
            (false, Self::Standard) => (12, 30, 2),
        };
        (least..=most).step_by(step).map(|power| 1 << power).collect()
    }

    /// The states of the sink that mean something between these ends.
    pub fn sink_states(self, ends: &Ends) -> &'static [SinkState] {
        match (&ends.sink, self) {
            (EndKind::File(_), Self::Standard) => &[SinkState::Fresh, SinkState::Resident],
            _ => &[SinkState::Fresh],
        }
    }
}

/// The loads that can be made here: on one core nothing can be kept busy beside us.
pub fn loads() -> &'static [Load] {
    if super::runner::busy_cores() > 0 { &[Load::Idle, Load::Loaded] } else { &[Load::Idle] }
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
            for (ends, least) in [("file:pipe", 4096), ("memory:memory", 16)] {
                let sizes = depth.sizes(&ends.parse().unwrap());
                assert!(sizes.len() >= 6 && sizes[0] == least && sizes.is_sorted());
            }
        }
        let most = Depth::Standard.sizes(&"file:file".parse().unwrap());
        assert_eq!(most.last(), Some(&(1 << 30)));
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

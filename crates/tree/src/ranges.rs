//! Sorted, non-overlapping ranges of bytes in a file.

use serde::{Deserialize, Serialize};

/// A set of bytes as ranges `[from, to)`. Adjacent ranges are merged, so there is a gap between any two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(u64, u64)>")]
pub struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// Returns the set of the first `to` bytes.
    pub fn up_to(to: u64) -> Self {
        let mut ranges = Self::default();
        ranges.add(0, to);
        ranges
    }

    /// Adds a range and merges it with ranges that overlap or touch it.
    pub fn add(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let begin = self.0.partition_point(|range| range.1 < from);
        let end = self.0.partition_point(|range| range.0 <= to);
        let joined = &self.0[begin..end];
        let from = joined.first().map_or(from, |range| range.0.min(from));
        let to = joined.last().map_or(to, |range| range.1.max(to));
        self.0.splice(begin..end, [(from, to)]);
    }

    /// Returns the number of bytes in the set.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|(from, to)| to - from).sum()
    }

    /// Returns the end of the last range.
    pub fn end(&self) -> u64 {
        self.0.last().map_or(0, |range| range.1)
    }

    /// Returns the number of bytes from the start of the file up to the first gap.
    pub fn prefix(&self) -> u64 {
        self.0.first().filter(|range| range.0 == 0).map_or(0, |range| range.1)
    }

    /// Returns the ranges in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().copied()
    }

    /// Returns the gaps in the first `size` bytes, in ascending order.
    pub fn gaps(&self, size: u64) -> Vec<(u64, u64)> {
        let begins = std::iter::once(0).chain(self.0.iter().map(|range| range.1));
        let ends = self.0.iter().map(|range| range.0).chain([size]);
        let gaps = begins.zip(ends).map(|(from, to)| (from, to.min(size)));
        gaps.filter(|(from, to)| from < to).collect()
    }
}

/// The error for a list that is not a valid set of ranges.
#[derive(Debug, thiserror::Error)]
#[error("ranges are empty, overlapping, adjacent or unsorted")]
pub struct NotRanges;

impl TryFrom<Vec<(u64, u64)>> for Ranges {
    type Error = NotRanges;

    fn try_from(list: Vec<(u64, u64)>) -> Result<Self, NotRanges> {
        let are_full = list.iter().all(|(from, to)| from < to);
        let are_apart = list.windows(2).all(|pair| pair[0].1 < pair[1].0);
        (are_full && are_apart).then_some(Self(list)).ok_or(NotRanges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_added_is_there_and_the_gaps_are_the_rest(
            added in prop::collection::vec((0_u64..64, 0_u64..64), 0..12),
        ) {
            let mut ranges = Ranges::default();
            let mut there = [false; 64];
            for (from, to) in added {
                ranges.add(from, to);
                there.iter_mut().enumerate().for_each(|(at, is)| *is |= (from..to).contains(&(at as u64)));
            }
            let mut seen = [true; 64];
            for (from, to) in ranges.gaps(64) {
                (from..to).for_each(|at| seen[at as usize] = false);
            }
            prop_assert_eq!(there, seen);
            prop_assert_eq!(ranges.bytes(), there.iter().filter(|is| **is).count() as u64);
            let list: Vec<_> = ranges.iter().collect();
            prop_assert_eq!(Ranges::try_from(list).unwrap(), ranges);
        }
    }

    #[test]
    fn lists_that_are_not_ranges_are_refused() {
        for list in [vec![(1, 1)], vec![(2, 1)], vec![(0, 2), (2, 3)], vec![(5, 6), (0, 1)]] {
            assert!(Ranges::try_from(list).is_err());
        }
        assert_eq!(Ranges::up_to(0), Ranges::default());
        assert_eq!((Ranges::up_to(3).prefix(), Ranges::up_to(3).end()), (3, 3));
    }
}

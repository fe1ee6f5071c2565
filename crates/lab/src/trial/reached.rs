//! The calls that went through the object, by size. The size classes are coarser than those of the counts.

use serde::Serialize;
use std::collections::BTreeMap;
use thalweg_preload::{counts::Counts, layout::KINDS};

/// The calls of a program that went through the object in one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reached {
    /// The number of processes in which the object was loaded.
    pub processes: u64,
    pub calls: u64,
    pub bytes: u64,
    /// The bands in ascending order, without empty ones.
    pub bands: Vec<ReachedBand>,
}

/// Calls with sizes in one range.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReachedBand {
    /// The smallest size in bytes.
    pub from: u64,
    pub upto: u64,
    /// Calls of memcpy and mempcpy.
    pub memcpy: u64,
    pub memmove: u64,
    pub memset: u64,
    pub bytes: u64,
}

impl Reached {
    /// Merges adjacent classes: one band up to 15 bytes, then two powers of two per band.
    pub fn of(counts: &Counts) -> Self {
        let mut bands: BTreeMap<u64, ReachedBand> = BTreeMap::new();
        for class in &counts.classes {
            let (from, upto) = range(class.upto);
            let band = bands.entry(from).or_insert_with(|| ReachedBand {
                from,
                upto,
                ..ReachedBand::default()
            });
            let calls = match KINDS.iter().position(|kind| *kind == class.kind) {
                Some(thalweg_preload::layout::COPY) => &mut band.memcpy,
                Some(thalweg_preload::layout::MOVE) => &mut band.memmove,
                _ => &mut band.memset,
            };
            *calls = calls.saturating_add(class.calls);
            band.bytes = band.bytes.saturating_add(class.bytes);
        }
        let (calls, bytes) = (counts.calls(), counts.bytes());
        Self { processes: counts.processes, calls, bytes, bands: bands.into_values().collect() }
    }
}

/// Returns the band that contains a size: 0 to 15, 16 to 63, 64 to 255, and so on by factors of 4.
fn range(size: u64) -> (u64, u64) {
    let digits = (u64::BITS - size.leading_zeros()).next_multiple_of(2).max(4);
    let upto = u64::MAX >> (u64::BITS - digits);
    (if digits == 4 { 0 } else { upto / 4 + 1 }, upto)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_preload::{
        counts::blank,
        layout::{COPY, MOVE, SET, class, word},
    };

    #[test]
    fn every_size_has_one_range_that_holds_it() {
        for size in [0, 1, 15, 16, 63, 64, 255, 256, 1023, 1024, 4095, 4096, 1 << 40, u64::MAX] {
            let (from, upto) = range(size);
            assert!((from..=upto).contains(&size), "{size}: {from}..={upto}");
        }
        assert_eq!([range(3), range(16), range(63)], [(0, 15), (16, 63), (16, 63)]);
        assert_eq!(range(64), (64, 255));
    }

    #[test]
    fn kinds_and_neighbouring_classes_are_put_together() {
        let mut bytes = blank();
        for (kind, size) in [(COPY, 0), (COPY, 9), (MOVE, 15), (SET, 20), (COPY, 60)] {
            let at = word(kind, class(size)) * 8;
            bytes[at] += 1;
            bytes[at + 8] += size as u8;
        }
        let reached = Reached::of(&Counts::read(&bytes).unwrap());
        assert_eq!((reached.calls, reached.bytes, reached.bands.len()), (5, 104, 2));
        let (small, large) = (&reached.bands[0], &reached.bands[1]);
        assert_eq!((small.memcpy, small.memmove, small.memset, small.bytes), (2, 1, 0, 24));
        assert_eq!((large.memcpy, large.memset, large.bytes), (1, 1, 80));
    }
}

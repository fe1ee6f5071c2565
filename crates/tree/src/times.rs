//! Compares modification times at the resolution that the destination file system stores.
//!
//! When a copy gets the time of its source, the file system rounds the time down to its resolution. The resolution is
//! derived from the change time, which comes from a nanosecond clock of the kernel. No program can set the change time.

use rustix::fs::{Stat, StatFs};
use std::cmp::Ordering;
use thalweg_sys::Errno;

use crate::identity::{ctime, mtime};

/// Seconds and nanoseconds since 1970.
pub(crate) type Time = (i64, u32);

const SECOND: u32 = 1_000_000_000;

/// Resolutions in nanoseconds: whole seconds (ext4 with inodes of 128 bytes, HFS+), 10 ms (exFAT), 1 us (UDF), 100 ns
/// (NTFS, SMB).
const STEPS: [u32; 4] = [SECOND, 10_000_000, 1_000, 100];

/// Magic numbers (statfs(2)) of file systems that report the modification time in place of the change time.
const FAT: u64 = 0x4d44;
const EXFAT: u64 = 0x2011_bab0;
/// Magic numbers of file systems that may have a coarse resolution and store a change time.
const EXT: u64 = 0xef53;
const NFS: u64 = 0x6969;
const HFS_PLUS: u64 = 0x482b;
const NTFS: u64 = 0x7366_746e;

/// 1980-01-01: the earliest time that FAT and exFAT store. They store local time, so it may differ by a day.
const EARLIEST: i64 = 315_532_800;
const DAY: i64 = 86_400;

/// Resolution and range of the times that a file system stores, if it is coarser than nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resolution {
    /// Nanoseconds between two storable times.
    step: u32,
    /// `true` if times before 1980 cannot be stored.
    is_fat: bool,
}

impl Resolution {
    /// Returns the resolution that this file's times prove; `None` if they prove none coarser than nanoseconds.
    pub fn of(file: &Stat, fs: impl FnOnce() -> Result<StatFs, Errno>) -> Option<Self> {
        let (modified, changed) = (mtime(file), ctime(file));
        let is_stored =
            |step: &u32| [modified, changed].iter().all(|time| time.1.is_multiple_of(*step));
        let step = STEPS.into_iter().find(is_stored)?;
        let proven = Self { step, is_fat: false };
        if modified != changed {
            return Some(proven);
        }
        match fs().ok()?.f_type as u64 {
            FAT => Some(Self { step: 2 * SECOND, is_fat: true }),
            EXFAT => Some(Self { step: 10_000_000, is_fat: true }),
            EXT | NFS | HFS_PLUS | NTFS => Some(proven),
            // Other file systems may report the modification time, which a program can set, as the change time.
            _ => None,
        }
    }

    /// Returns the stored value of a time.
    fn floor(self, time: Time) -> Time {
        let (seconds, nanoseconds) = time;
        match i64::from(self.step / SECOND) {
            0 => (seconds, nanoseconds - nanoseconds % self.step),
            whole => (seconds - seconds.rem_euclid(whole), 0),
        }
    }

    /// Returns `true` if `wanted` is out of range and the file system stored the limit `stored` instead.
    fn is_limit(self, stored: Time, wanted: Time) -> bool {
        let is_earliest = self.is_fat && (stored.0 - EARLIEST).abs() <= DAY && wanted < stored;
        // A file system with 32-bit times stores its latest time, in 2038, instead of a later one.
        let is_latest = stored == (i32::MAX.into(), 0) && wanted > stored;
        is_earliest || is_latest
    }
}

/// Compares a stored time with the time of the source. Returns `Equal` also if the file system of the destination
/// cannot store the source's time exactly.
pub(crate) fn order(
    stored: Time,
    wanted: Time,
    resolution: impl FnOnce() -> Option<Resolution>,
) -> Ordering {
    let order = stored.cmp(&wanted);
    let is_near = stored.0.abs_diff(wanted.0) <= 2;
    let may_be_limit = wanted.0 < EARLIEST + DAY || wanted.0 > i32::MAX.into();
    if order == Ordering::Equal || !(is_near || may_be_limit) {
        return order;
    }
    match resolution() {
        Some(at) if at.floor(wanted) == stored || at.is_limit(stored, wanted) => Ordering::Equal,
        _ => order,
    }
}

/// Compares the modification times of a copy and its source; see [`order`].
pub(crate) fn order_of_files(
    there: &Stat,
    source: &Stat,
    fs: impl FnOnce() -> Result<StatFs, Errno>,
) -> Ordering {
    order(mtime(there), mtime(source), || Resolution::of(there, fs))
}

/// Returns `true` if a copy has the modification time of its source, as precisely as its file system can store it.
pub(crate) fn is_same(
    there: &Stat,
    source: &Stat,
    fs: impl FnOnce() -> Result<StatFs, Errno>,
) -> bool {
    order_of_files(there, source, fs) == Ordering::Equal
}

/// Returns the latest moment that the stored change time can stand for. Returns `None` if the file system may report
/// the modification time instead, because a copy sets that time.
pub(crate) fn latest_change(file: &Stat) -> Option<Time> {
    let (seconds, nanoseconds) = ctime(file);
    let step = STEPS.into_iter().find(|step| nanoseconds.is_multiple_of(*step)).unwrap_or(1);
    let end = nanoseconds + step - 1;
    (mtime(file) != ctime(file))
        .then_some((seconds.saturating_add((end / SECOND).into()), end % SECOND))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustix::fs::{fstat, fstatfs};

    /// Compares a destination file, which has these modification and change times, with a source file that was modified
    /// at `wanted`. `magic` is the type of the destination's file system.
    fn compared(modified: Time, changed: Time, wanted: Time, magic: u64) -> Ordering {
        let file = tempfile::tempfile().unwrap();
        let (mut there, mut source) = (fstat(&file).unwrap(), fstat(&file).unwrap());
        (there.st_mtime, there.st_mtime_nsec) = (modified.0, modified.1.into());
        (there.st_ctime, there.st_ctime_nsec) = (changed.0, changed.1.into());
        (source.st_mtime, source.st_mtime_nsec) = (wanted.0, wanted.1.into());
        order_of_files(&there, &source, || {
            let mut fs = fstatfs(&file)?;
            fs.f_type = magic as _;
            Ok(fs)
        })
    }

    #[test]
    fn the_resolution_is_the_one_that_the_change_time_shows() {
        use Ordering::{Equal, Greater, Less};
        for (modified, changed, wanted, magic, order) in [
            // The change time proves that nanoseconds are stored, so the whole second is an earlier time.
            ((5, 0), (9, 123_456_789), (5, 1), EXT, Less),
            ((5, 0), (5, 0), (5, 1), 0, Less),
            ((5, 100), (9, 700), (5, 101), EXT, Equal),
            ((5, 100), (9, 701), (5, 101), EXT, Less),
            ((5, 0), (9, 0), (5, SECOND - 1), EXT, Equal),
            ((5, 0), (5, 0), (5, SECOND - 1), EXT, Equal),
            ((5, 0), (9, 0), (6, 0), EXT, Less),
            ((-5, 0), (9, 0), (-5, 7), EXT, Equal),
            ((5, 1), (9, 0), (5, 0), EXT, Greater),
            ((4, 0), (4, 0), (5, SECOND - 1), FAT, Equal),
            ((4, 0), (4, 0), (6, 0), FAT, Less),
            ((4, 0), (9, 0), (5, 0), EXT, Less),
            ((4, 10_000_000), (4, 10_000_000), (4, 19_999_999), EXFAT, Equal),
            ((EARLIEST + 3600, 0), (EARLIEST + 3600, 0), (0, 0), FAT, Equal),
            ((EARLIEST, 0), (9, 0), (0, 0), EXT, Greater),
            ((i32::MAX.into(), 0), (9, 0), (1 << 33, 7), EXT, Equal),
            ((i32::MAX.into(), 0), (9, 5), (1 << 33, 7), EXT, Less),
        ] {
            assert_eq!(
                compared(modified, changed, wanted, magic),
                order,
                "{modified:?} {wanted:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn what_is_stored_of_a_time_is_equal_to_it(
            seconds in -5_000_000_000_i64..5_000_000_000,
            nanoseconds in 0..SECOND,
            step in prop::sample::select(&[100, 1_000, 10_000_000, SECOND, 2 * SECOND][..]),
        ) {
            let at = Resolution { step, is_fat: false };
            let stored = at.floor((seconds, nanoseconds));
            prop_assert!(stored <= (seconds, nanoseconds) && at.floor(stored) == stored);
            prop_assert_eq!(order(stored, (seconds, nanoseconds), || Some(at)), Ordering::Equal);
        }
    }
}

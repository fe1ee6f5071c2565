//! Checks of the safe functions before they copy.

use core::ops::{Bound, RangeBounds};

/// Panics if source and sink differ in length. The lengths are passed by value: values formatted by reference would be written to
/// the stack before every copy.
#[inline(always)]
#[track_caller]
pub fn same_length(dst: &[u8], src: &[u8]) {
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn differ(sink: usize, source: usize) -> ! {
        panic!("source and sink differ in length: {source} and {sink} bytes")
    }
    if dst.len() != src.len() {
        differ(dst.len(), src.len());
    }
}

/// Returns the start and length of a range. Panics unless both this range and a range of equal length at `to` lie inside `len`
/// bytes.
#[track_caller]
pub fn part(len: usize, src: &impl RangeBounds<usize>, to: usize) -> (usize, usize) {
    let start = match src.start_bound() {
        Bound::Included(&at) => at,
        Bound::Excluded(&at) => {
            at.checked_add(1).expect("start of the source range overflows usize")
        }
        Bound::Unbounded => 0,
    };
    let end = match src.end_bound() {
        Bound::Included(&at) => at.checked_add(1).expect("end of the source range overflows usize"),
        Bound::Excluded(&at) => at,
        Bound::Unbounded => len,
    };
    assert!(start <= end && end <= len, "the source range is outside the slice");
    let n = end - start;
    assert!(to <= len - n, "the destination range is outside the slice");
    (start, n)
}

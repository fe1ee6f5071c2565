//! Hashes two lanes (64-bit parts of a stripe) at a time in plain integers: for targets without
//! vectors, and for Miri.

use super::long::{HashLanes, run};
use super::short::PRIME32;
use crate::row::{ALWAYS, Hash};

pub const ROW: Hash = Hash {
    name: "xxh3-portable",
    summary: "two of the eight hash lanes at a time, in plain integers",
    is_available: ALWAYS,
    copy,
    sum,
};

/// # Safety
/// The contract of [`Hash::copy`].
unsafe fn copy(dst: *mut u8, src: *const u8, n: usize) -> u64 {
    // SAFETY: guaranteed by the caller.
    unsafe { run::<u128, 4, true>(dst, src, n) }
}

/// # Safety
/// The contract of [`Hash::sum`].
unsafe fn sum(src: *const u8, n: usize) -> u64 {
    // SAFETY: guaranteed by the caller; nothing is written.
    unsafe { run::<u128, 4, false>(core::ptr::null_mut(), src, n) }
}

#[inline(always)]
fn halves(word: u128) -> [u64; 2] {
    [word as u64, (word >> 64) as u64]
}

#[inline(always)]
fn whole([low, high]: [u64; 2]) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

#[inline(always)]
fn product(key: u64) -> u64 {
    (key & 0xffff_ffff).wrapping_mul(key >> 32)
}

#[inline(always)]
fn stirred(sum: u64, secret: u64) -> u64 {
    (sum ^ sum >> 47 ^ secret).wrapping_mul(PRIME32[0])
}

impl HashLanes for u128 {
    #[inline(always)]
    fn ordered(self) -> Self {
        u128::from_le(self)
    }

    #[inline(always)]
    unsafe fn plus(self, data: Self, secret: Self) -> Self {
        let (sums, words, keys) = (halves(self), halves(data), halves(data ^ secret));
        whole([
            sums[0].wrapping_add(words[1]).wrapping_add(product(keys[0])),
            sums[1].wrapping_add(words[0]).wrapping_add(product(keys[1])),
        ])
    }

    #[inline(always)]
    unsafe fn scrambled(self, secret: Self) -> Self {
        let (sums, keys) = (halves(self), halves(secret));
        whole([stirred(sums[0], keys[0]), stirred(sums[1], keys[1])])
    }
}

//! Hashes two lanes (64-bit parts of a stripe) at a time on aarch64, where NEON is part of the
//! architecture.

use core::arch::aarch64::{
    uint8x16_t, vaddq_u64, vdup_n_u32, veorq_u8, veorq_u64, vextq_u8, vmovn_u64, vmull_u32,
    vreinterpretq_u8_u64, vreinterpretq_u64_u8, vshlq_n_u64, vshrn_n_u64, vshrq_n_u64,
};

use super::long::{HashLanes, run};
use super::short::PRIME32;
use crate::row::{ALWAYS, Hash};

pub const ROW: Hash = Hash {
    name: "xxh3-neon",
    summary: "two of the eight hash lanes at a time, in 16-byte vectors",
    is_available: ALWAYS,
    copy,
    sum,
};

/// # Safety
/// The contract of [`Hash::copy`].
unsafe fn copy(dst: *mut u8, src: *const u8, n: usize) -> u64 {
    // SAFETY: guaranteed by the caller.
    unsafe { run::<uint8x16_t, 4, true>(dst, src, n) }
}

/// # Safety
/// The contract of [`Hash::sum`].
unsafe fn sum(src: *const u8, n: usize) -> u64 {
    // SAFETY: guaranteed by the caller; nothing is written.
    unsafe { run::<uint8x16_t, 4, false>(core::ptr::null_mut(), src, n) }
}

impl HashLanes for uint8x16_t {
    #[inline(always)]
    unsafe fn plus(self, data: Self, secret: Self) -> Self {
        // SAFETY: NEON is part of aarch64.
        unsafe { plus(self, data, secret) }
    }

    #[inline(always)]
    unsafe fn scrambled(self, secret: Self) -> Self {
        // SAFETY: NEON is part of aarch64.
        unsafe { scrambled(self, secret) }
    }
}

#[target_feature(enable = "neon")]
#[inline]
fn plus(sums: uint8x16_t, data: uint8x16_t, secret: uint8x16_t) -> uint8x16_t {
    let key = vreinterpretq_u64_u8(veorq_u8(data, secret));
    let product = vmull_u32(vmovn_u64(key), vshrn_n_u64::<32>(key));
    let swapped = vreinterpretq_u64_u8(vextq_u8::<8>(data, data));
    let more = vaddq_u64(product, swapped);
    vreinterpretq_u8_u64(vaddq_u64(vreinterpretq_u64_u8(sums), more))
}

#[target_feature(enable = "neon")]
#[inline]
fn scrambled(sums: uint8x16_t, secret: uint8x16_t) -> uint8x16_t {
    let prime = vdup_n_u32(PRIME32[0] as u32);
    let (sums, secret) = (vreinterpretq_u64_u8(sums), vreinterpretq_u64_u8(secret));
    let word = veorq_u64(veorq_u64(sums, vshrq_n_u64::<47>(sums)), secret);
    let low = vmull_u32(vmovn_u64(word), prime);
    let high = vmull_u32(vshrn_n_u64::<32>(word), prime);
    vreinterpretq_u8_u64(vaddq_u64(low, vshlq_n_u64::<32>(high)))
}

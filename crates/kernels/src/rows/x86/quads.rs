//! Copies 4 to 15 bytes in four overlapping moves of 4. From 16 to 64 bytes, comparisons halve the range of lengths, as
//! in glibc. Compared with `avx2`, it saves two mispredictions at unpredictable lengths. At repeated lengths it loses
//! nothing, apart from effects of code layout.

use core::arch::x86_64::{__m128i, __m256i};

use crate::cpu;
use crate::row::Kernel;
use crate::rows::vector::behind;
use crate::word::{ends, four};

/// Copies up to 64 bytes. Returns `false`, and does nothing, for larger sizes.
///
/// # Safety
/// `src` is readable and `dst` writable for `n` bytes; they may overlap.
#[inline(always)]
unsafe fn short(dst: *mut u8, src: *const u8, n: usize) -> bool {
    if n < 16 {
        seldom();
        // SAFETY: less than 16 bytes.
        unsafe { below_a_vector(dst, src, n) };
    } else if n > 64 {
        seldom();
        return false;
    } else if n < 32 {
        seldom();
        // SAFETY: 16 to 32 bytes.
        unsafe { ends::<__m128i, 1>(dst, src, n) };
    } else {
        // SAFETY: 32 to 64 bytes.
        unsafe { ends::<__m256i, 1>(dst, src, n) };
    }
    true
}

/// # Safety
/// `src` is readable and `dst` writable for `n < 16` bytes; they may overlap.
#[inline(always)]
unsafe fn below_a_vector(dst: *mut u8, src: *const u8, n: usize) {
    if n >= 4 {
        // SAFETY: 4 to 15 bytes.
        unsafe { four::<u32>(dst, src, n) };
    } else if n >= 2 {
        // SAFETY: 2 or 3 bytes.
        unsafe { ends::<u16, 1>(dst, src, n) };
    } else if n != 0 {
        // SAFETY: one byte, twice.
        unsafe { ends::<u8, 1>(dst, src, n) };
    }
}

/// Marks a branch as unlikely, so that sizes from 32 to 64 bytes take no jump.
#[cold]
#[inline]
fn seldom() {}

behind! {
    AVX2, "quads-avx2",
    "4 to 15 bytes in four overlapping 4-byte moves; other sizes like avx2",
    || cpu::has(cpu::AVX2), avx2, short, __m256i, "avx2"
}

//! One branch for 16 to 64 bytes, with four overlapping moves of 16 bytes. Shorter sizes take a sequence of tests for words of 8,
//! 4, 2 and 1 bytes. This kernel is for CPUs without masks. Compared with `sse2` or `avx2`, it saves one misprediction at
//! unpredictable lengths, and loses little at repeated lengths.

use core::arch::x86_64::__m128i;
#[cfg(not(miri))]
use core::arch::x86_64::__m256i;

#[cfg(not(miri))]
use crate::cpu;
use crate::row::{ALWAYS, Kernel};
use crate::rows::vector::behind;
use crate::word::{Vector, four};

/// Copies up to 64 bytes. Returns `false`, and does nothing, for larger sizes.
///
/// # Safety
/// `src` is readable and `dst` writable for `n` bytes; they may overlap.
#[inline(always)]
unsafe fn short(dst: *mut u8, src: *const u8, n: usize) -> bool {
    if n < size_of::<__m128i>() {
        // SAFETY: less than a vector.
        unsafe { __m128i::copy_below(dst, src, n) };
        return true;
    }
    // SAFETY: guaranteed by the caller, and `n` is at least one vector.
    unsafe { from_a_vector(dst, src, n) }
}

/// Copies one to four vectors. Returns `false`, and does nothing, for larger sizes.
///
/// # Safety
/// As for [`short`], and `n` is at least 16, the size of a vector.
#[inline(always)]
pub unsafe fn from_a_vector(dst: *mut u8, src: *const u8, n: usize) -> bool {
    let fits = n <= 4 * size_of::<__m128i>();
    if fits {
        // SAFETY: one to four vectors.
        unsafe { four::<__m128i>(dst, src, n) };
    }
    fits
}

behind! {
    SSE2, "four",
    "16 to 64 bytes in four overlapping 16-byte moves; other sizes like sse2",
    ALWAYS, sse2, short, __m128i
}
#[cfg(not(miri))]
behind! {
    AVX2, "four-avx2",
    "16 to 64 bytes in four overlapping 16-byte moves; other sizes like avx2",
    || cpu::has(cpu::AVX2), avx2, short, __m256i, "avx2"
}

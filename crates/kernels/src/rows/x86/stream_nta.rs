//! `stream` with a prefetch of the source, eight cache lines ahead. The hint is the one for data that is read once: the lines go
//! to the L1 cache and evict little from the other caches.

use core::arch::x86_64::{__m128i, __m256i, __m512i, _MM_HINT_NTA};

use super::stream::{copy_past, prefetch};
use crate::cpu;
use crate::row::{ALWAYS, Kernel};

/// Prefetch distance, in bytes: eight cache lines.
const AHEAD: usize = 512;

pub const COPY: Kernel = Kernel {
    name: "stream-nta",
    summary: "as stream, with prefetchnta of the source 512 bytes ahead",
    is_available: ALWAYS,
    copy,
    move_: None,
};

#[inline(always)]
fn ask(from: *const u8, step: usize) {
    prefetch::<_MM_HINT_NTA>(from.wrapping_add(AHEAD), step);
}

macro_rules! width {
    ($copy:ident, $vector:ty, $features:literal) => {
        /// # Safety
        /// The contract of [`Kernel::copy`].
        #[target_feature(enable = $features)]
        unsafe extern "C" fn $copy(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
            // SAFETY: guaranteed by the caller.
            unsafe { copy_past::<$vector>(dst, src, n, ask) };
            dst
        }
    };
}

width!(copy128, __m128i, "sse2");
width!(copy256, __m256i, "avx2");
width!(copy512, __m512i, "avx2,avx512f,avx512bw,avx512vl");

/// # Safety
/// The contract of [`Kernel::copy`].
unsafe extern "C" fn copy(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    if cpu::has(cpu::AVX2 | cpu::AVX512) {
        // SAFETY: guaranteed by the caller; the CPU supports the instructions.
        unsafe { copy512(dst, src, n) }
    } else if cpu::has(cpu::AVX2) {
        // SAFETY: guaranteed by the caller; the CPU supports the instructions.
        unsafe { copy256(dst, src, n) }
    } else {
        // SAFETY: guaranteed by the caller.
        unsafe { copy128(dst, src, n) }
    }
}

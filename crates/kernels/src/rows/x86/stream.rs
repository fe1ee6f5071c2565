//! Non-temporal stores in one stream: the sink bypasses the caches and is not read first. For data that is larger than the caches
//! or will not be read again soon.
//!
//! This kernel has no `memmove`, because the sink of an overlapping move is usually read soon.

use core::arch::x86_64::{
    __m128i, __m256i, __m512i, _MM_HINT_T0, _mm_prefetch, _mm_sfence, _mm_stream_si128,
    _mm256_stream_si256, _mm512_stream_si512,
};
use core::ffi::c_int;

use crate::cpu;
use crate::row::{ALWAYS, Fill, Kernel};
use crate::rows::prefetch::prefetch_distance;
use crate::rows::vector;
use crate::word::{Vector, load, store};

const LINE: usize = 64;

pub const COPY: Kernel = Kernel {
    name: "stream",
    summary: "non-temporal stores of the widest vectors, one stream, optional prefetch",
    is_available: ALWAYS,
    copy,
    move_: None,
};

pub const FILL: Fill = Fill {
    name: "stream",
    summary: "non-temporal stores of the widest vectors, one stream",
    is_available: ALWAYS,
    fill,
};

pub trait StreamStore: Vector {
    /// # Safety
    /// `to` is aligned to the vector and writable, and an sfence follows.
    unsafe fn stream(self, to: *mut Self);
}

impl StreamStore for __m128i {
    #[inline(always)]
    unsafe fn stream(self, to: *mut Self) {
        // SAFETY: guaranteed by the caller.
        unsafe { _mm_stream_si128(to, self) };
    }
}

impl StreamStore for __m256i {
    #[inline(always)]
    unsafe fn stream(self, to: *mut Self) {
        // SAFETY: guaranteed by the caller; only functions that have AVX use this type.
        unsafe { _mm256_stream_si256(to, self) };
    }
}

impl StreamStore for __m512i {
    #[inline(always)]
    unsafe fn stream(self, to: *mut Self) {
        // SAFETY: guaranteed by the caller; only functions that have AVX-512 use this type.
        unsafe { _mm512_stream_si512(to, self) };
    }
}

/// # Safety
/// `dst + at` is aligned to the vector, four of which are writable; an sfence follows.
#[inline(always)]
unsafe fn store_past<V: StreamStore>(dst: *mut u8, at: usize, block: [V; 4]) {
    let to = dst.wrapping_add(at).cast::<V>();
    // SAFETY: the first of the four vectors.
    unsafe { block[0].stream(to) };
    // SAFETY: the second vector.
    unsafe { block[1].stream(to.wrapping_add(1)) };
    // SAFETY: the third vector.
    unsafe { block[2].stream(to.wrapping_add(2)) };
    // SAFETY: the fourth vector.
    unsafe { block[3].stream(to.wrapping_add(3)) };
}

/// Prefetches every cache line of `bytes` bytes, with the hint `HINT`.
#[inline(always)]
pub fn prefetch<const HINT: i32>(from: *const u8, bytes: usize) {
    let mut at = 0;
    while at < bytes {
        // SAFETY: a prefetch never faults, regardless of the address.
        unsafe { _mm_prefetch::<HINT>(from.wrapping_add(at).cast()) };
        at += LINE;
    }
}

/// Copies with non-temporal stores. Calls `prepare` before each step with the address and size of its source.
///
/// # Safety
/// The contract of [`Kernel::copy`].
#[inline(always)]
pub unsafe fn copy_past<V: StreamStore>(
    dst: *mut u8,
    src: *const u8,
    n: usize,
    prepare: impl Fn(*const u8, usize),
) {
    let step = 4 * size_of::<V>();
    if n <= 2 * step {
        // SAFETY: guaranteed by the caller, and `n` is up to eight vectors.
        return unsafe { vector::short::<V>(dst, src, n) };
    }
    let last = n - step;
    // SAFETY: the first four of more than eight vectors, which are at least a cache line.
    let head: [V; 4] = unsafe { load(src, 0) };
    // SAFETY: the corresponding range of the sink.
    unsafe { store(dst, 0, head) };
    // Writes whole cache lines only; otherwise the CPU would have to read the remainder of a line.
    let mut at = LINE - dst.addr() % LINE;
    while at < last {
        prepare(src.wrapping_add(at), step);
        // SAFETY: `at + 4 vectors < n`.
        let block: [V; 4] = unsafe { load(src, at) };
        // SAFETY: the corresponding range of the sink, aligned to a cache line; the sfence is below.
        unsafe { store_past(dst, at, block) };
        at += step;
    }
    // SAFETY: SSE is part of x86-64.
    unsafe { _mm_sfence() };
    // SAFETY: the last four of more than eight vectors.
    let tail: [V; 4] = unsafe { load(src, last) };
    // SAFETY: the corresponding range of the sink.
    unsafe { store(dst, last, tail) };
}

/// # Safety
/// The contract of [`Fill::fill`].
#[inline(always)]
unsafe fn fill_past<V: StreamStore>(dst: *mut u8, byte: u8, n: usize) {
    let step = 4 * size_of::<V>();
    if n <= 2 * step {
        // SAFETY: guaranteed by the caller.
        return unsafe { vector::fill::<V>(dst, byte, n) };
    }
    let word = V::splat(byte);
    let last = n - step;
    // SAFETY: the first four of more than eight vectors.
    unsafe { store(dst, 0, [word; 4]) };
    let mut at = LINE - dst.addr() % LINE;
    while at < last {
        // SAFETY: `at + 4 vectors < n`, aligned to a cache line; the sfence is below.
        unsafe { store_past(dst, at, [word; 4]) };
        at += step;
    }
    // SAFETY: SSE is part of x86-64.
    unsafe { _mm_sfence() };
    // SAFETY: the last four of more than eight vectors.
    unsafe { store(dst, last, [word; 4]) };
}

/// Returns a function that prefetches `ahead` bytes ahead, or does nothing if `ahead` is 0.
#[inline(always)]
fn at_distance(ahead: usize) -> impl Fn(*const u8, usize) {
    move |from, step| {
        if ahead != 0 {
            prefetch::<_MM_HINT_T0>(from.wrapping_add(ahead), step);
        }
    }
}

macro_rules! width {
    ($copy:ident, $fill:ident, $vector:ty, $features:literal) => {
        /// # Safety
        /// The contract of [`Kernel::copy`].
        #[target_feature(enable = $features)]
        unsafe extern "C" fn $copy(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
            // SAFETY: guaranteed by the caller.
            unsafe { copy_past::<$vector>(dst, src, n, at_distance(prefetch_distance())) };
            dst
        }

        /// # Safety
        /// The contract of [`Fill::fill`].
        #[target_feature(enable = $features)]
        unsafe extern "C" fn $fill(dst: *mut u8, byte: c_int, n: usize) -> *mut u8 {
            // SAFETY: guaranteed by the caller.
            unsafe { fill_past::<$vector>(dst, byte as u8, n) };
            dst
        }
    };
}

width!(copy128, fill128, __m128i, "sse2");
width!(copy256, fill256, __m256i, "avx2");
width!(copy512, fill512, __m512i, "avx2,avx512f,avx512bw,avx512vl");

/// # Safety
/// The contract of [`Kernel::copy`].
unsafe extern "C" fn copy(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    if cpu::has(cpu::AVX2 | cpu::AVX512) {
        // SAFETY: guaranteed by the caller; the CPU has the instructions.
        unsafe { copy512(dst, src, n) }
    } else if cpu::has(cpu::AVX2) {
        // SAFETY: guaranteed by the caller; the CPU has the instructions.
        unsafe { copy256(dst, src, n) }
    } else {
        // SAFETY: guaranteed by the caller.
        unsafe { copy128(dst, src, n) }
    }
}

/// # Safety
/// The contract of [`Fill::fill`].
unsafe extern "C" fn fill(dst: *mut u8, byte: c_int, n: usize) -> *mut u8 {
    if cpu::has(cpu::AVX2 | cpu::AVX512) {
        // SAFETY: guaranteed by the caller; the CPU has the instructions.
        unsafe { fill512(dst, byte, n) }
    } else if cpu::has(cpu::AVX2) {
        // SAFETY: guaranteed by the caller; the CPU has the instructions.
        unsafe { fill256(dst, byte, n) }
    } else {
        // SAFETY: guaranteed by the caller.
        unsafe { fill128(dst, byte, n) }
    }
}

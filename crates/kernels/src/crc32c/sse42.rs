//! Runs the crc32 instruction on three streams at a time, because the instruction has a latency of three cycles and a
//! throughput of one per cycle. Carry-less multiplication combines the three sums.

use core::arch::x86_64::{
    _mm_clmulepi64_si128, _mm_crc32_u8, _mm_crc32_u16, _mm_crc32_u32, _mm_crc32_u64,
    _mm_cvtsi64_si128, _mm_cvtsi128_si64,
};

use super::poly;
use super::software::take;
use crate::cpu;
use crate::row::Checksum;

pub const ROW: Checksum = Checksum {
    name: "crc32c-sse42",
    summary: "the crc32 instruction on three streams, joined by carry-less multiplication",
    is_available: || cpu::has(cpu::CRC),
    copy,
    sum,
};

/// Bytes per stream. They are enough to hide the cost of combining, and few enough that three streams of source and sink fit in
/// the L1 cache.
const LONG: usize = 512;
/// Bytes per stream for the remaining bytes.
const SHORT: usize = 64;

/// # Safety
/// The contract of [`Checksum::copy`].
#[target_feature(enable = "sse4.2,pclmulqdq")]
unsafe fn copy(dst: *mut u8, src: *const u8, n: usize, crc: u32) -> u32 {
    // SAFETY: guaranteed by the caller.
    unsafe { run::<true>(dst, src, n, crc) }
}

/// # Safety
/// The contract of [`Checksum::sum`].
#[target_feature(enable = "sse4.2,pclmulqdq")]
unsafe fn sum(src: *const u8, n: usize, crc: u32) -> u32 {
    // SAFETY: guaranteed by the caller; nothing is written.
    unsafe { run::<false>(core::ptr::null_mut(), src, n, crc) }
}

/// # Safety
/// `src` is readable for `n` bytes; if `COPY`, `dst` is writable for as many.
#[target_feature(enable = "sse4.2,pclmulqdq")]
#[inline]
unsafe fn run<const COPY: bool>(dst: *mut u8, src: *const u8, n: usize, crc: u32) -> u32 {
    let mut crc = !crc;
    let mut at = 0;
    while at + 3 * LONG <= n {
        // SAFETY: three long streams are left.
        crc = unsafe { three::<COPY, LONG>(dst, src, at, crc) };
        at += 3 * LONG;
    }
    while at + 3 * SHORT <= n {
        // SAFETY: three short streams are left.
        crc = unsafe { three::<COPY, SHORT>(dst, src, at, crc) };
        at += 3 * SHORT;
    }
    // SAFETY: `at <= n`.
    !unsafe { rest::<COPY>(dst, src, at..n, crc) }
}

/// # Safety
/// Three streams lie at `at` inside `src` and, if `COPY`, inside `dst`.
#[target_feature(enable = "sse4.2,pclmulqdq")]
#[inline]
unsafe fn three<const COPY: bool, const STREAM: usize>(
    dst: *mut u8,
    src: *const u8,
    at: usize,
    crc: u32,
) -> u32 {
    let mut a = u64::from(crc);
    let mut b = 0;
    let mut c = 0;
    let mut i = at;
    while i < at + STREAM {
        // SAFETY: inside the first stream.
        a = _mm_crc32_u64(a, unsafe { take::<COPY, _>(dst, src, i) });
        // SAFETY: inside the second stream.
        b = _mm_crc32_u64(b, unsafe { take::<COPY, _>(dst, src, i + STREAM) });
        // SAFETY: inside the third stream.
        c = _mm_crc32_u64(c, unsafe { take::<COPY, _>(dst, src, i + 2 * STREAM) });
        i += 8;
    }
    let early = moved(a, const { poly::over(2 * STREAM) }) ^ moved(b, const { poly::over(STREAM) });
    _mm_crc32_u64(0, early) as u32 ^ c as u32
}

/// Advances a sum over the zeros that `factor` represents. The caller must reduce the 64-bit result with the crc32 instruction.
#[target_feature(enable = "sse4.2,pclmulqdq")]
#[inline]
fn moved(crc: u64, factor: u64) -> u64 {
    let product =
        _mm_clmulepi64_si128::<0>(_mm_cvtsi64_si128(crc as i64), _mm_cvtsi64_si128(factor as i64));
    _mm_cvtsi128_si64(product) as u64
}

/// Sums the remaining bytes in one stream, without inverting the sum.
///
/// # Safety
/// The range lies inside `src` and, if `COPY`, inside `dst`.
#[target_feature(enable = "sse4.2,pclmulqdq")]
#[inline]
pub unsafe fn rest<const COPY: bool>(
    dst: *mut u8,
    src: *const u8,
    range: core::ops::Range<usize>,
    crc: u32,
) -> u32 {
    let mut crc = u64::from(crc);
    let mut at = range.start;
    while at + 8 <= range.end {
        // SAFETY: eight bytes are left.
        crc = _mm_crc32_u64(crc, unsafe { take::<COPY, _>(dst, src, at) });
        at += 8;
    }
    let mut crc = crc as u32;
    if range.end - at >= 4 {
        // SAFETY: four bytes are left.
        crc = _mm_crc32_u32(crc, unsafe { take::<COPY, _>(dst, src, at) });
        at += 4;
    }
    if range.end - at >= 2 {
        // SAFETY: two bytes are left.
        crc = _mm_crc32_u16(crc, unsafe { take::<COPY, _>(dst, src, at) });
        at += 2;
    }
    if at < range.end {
        // SAFETY: one byte is left.
        crc = _mm_crc32_u8(crc, unsafe { take::<COPY, _>(dst, src, at) });
    }
    crc
}

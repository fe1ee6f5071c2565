//! Folding by carry-less multiplication, 256 bytes at a time: four accumulators of 64 bytes. Each is advanced over the next block
//! and added to it. The crc32 instruction handles the remaining bytes.

use core::arch::x86_64::{
    __m128i, __m512i, _mm_clmulepi64_si128, _mm_crc32_u64, _mm_cvtsi32_si128, _mm_cvtsi128_si64,
    _mm_extract_epi64, _mm_set_epi64x, _mm_xor_si128, _mm512_broadcast_i32x4,
    _mm512_clmulepi64_epi128, _mm512_extracti32x4_epi32, _mm512_ternarylogic_epi64,
    _mm512_xor_si512, _mm512_zextsi128_si512,
};

use super::poly;
use super::software::take;
use super::sse42::rest;
use crate::cpu;
use crate::row::Checksum;

pub const ROW: Checksum = Checksum {
    name: "crc32c-vpclmul",
    summary: "carry-less multiplication of 64-byte vectors, 256 bytes at a time",
    is_available: || cpu::has(cpu::AVX2 | cpu::AVX512 | cpu::CRC | cpu::VPCLMUL),
    copy,
    sum,
};

const LANE: usize = 16;
const VECTOR: usize = 64;
const BLOCK: usize = 4 * VECTOR;

/// # Safety
/// The contract of [`Checksum::copy`].
#[target_feature(enable = "avx2,avx512f,avx512bw,avx512vl,sse4.2,pclmulqdq,vpclmulqdq")]
unsafe fn copy(dst: *mut u8, src: *const u8, n: usize, crc: u32) -> u32 {
    // SAFETY: guaranteed by the caller.
    unsafe { run::<true>(dst, src, n, crc) }
}

/// # Safety
/// The contract of [`Checksum::sum`].
#[target_feature(enable = "avx2,avx512f,avx512bw,avx512vl,sse4.2,pclmulqdq,vpclmulqdq")]
unsafe fn sum(src: *const u8, n: usize, crc: u32) -> u32 {
    // SAFETY: guaranteed by the caller; nothing is written.
    unsafe { run::<false>(core::ptr::null_mut(), src, n, crc) }
}

/// # Safety
/// `src` is readable for `n` bytes; if `COPY`, `dst` is writable for as many.
#[target_feature(enable = "avx2,avx512f,avx512bw,avx512vl,sse4.2,pclmulqdq,vpclmulqdq")]
#[inline]
unsafe fn run<const COPY: bool>(dst: *mut u8, src: *const u8, n: usize, crc: u32) -> u32 {
    if n < BLOCK {
        // SAFETY: guaranteed by the caller.
        return !unsafe { rest::<COPY>(dst, src, 0..n, !crc) };
    }
    // Every misaligned vector store crosses a cache line. The cost of aligning pays off only for many blocks.
    let head = if COPY && n > 64 * BLOCK { dst.addr().wrapping_neg() % VECTOR } else { 0 };
    // SAFETY: the head is shorter than a vector, and `n` is many blocks.
    let crc = unsafe { rest::<COPY>(dst, src, 0..head, !crc) };
    // SAFETY: at least one block remains.
    let mut sums = unsafe { block::<COPY>(dst, src, head) };
    let start = _mm512_zextsi128_si512(_mm_cvtsi32_si128(crc as i32));
    sums[0] = _mm512_xor_si512(sums[0], start);
    let mut at = head + BLOCK;
    let by = factors::<BLOCK>();
    while at + BLOCK <= n {
        // SAFETY: at least one more block remains.
        let next = unsafe { block::<COPY>(dst, src, at) };
        sums[0] = folded(sums[0], by, next[0]);
        sums[1] = folded(sums[1], by, next[1]);
        sums[2] = folded(sums[2], by, next[2]);
        sums[3] = folded(sums[3], by, next[3]);
        at += BLOCK;
    }
    let by = factors::<VECTOR>();
    let half = folded(folded(sums[0], by, sums[1]), by, sums[2]);
    let all = folded(half, by, sums[3]);
    let crc = reduced(joined(all));
    // SAFETY: `at <= n`.
    !unsafe { rest::<COPY>(dst, src, at..n, crc) }
}

/// # Safety
/// A block lies at `at` inside `src` and, if `COPY`, inside `dst`.
#[target_feature(enable = "avx2,avx512f,avx512bw,avx512vl")]
#[inline]
unsafe fn block<const COPY: bool>(dst: *mut u8, src: *const u8, at: usize) -> [__m512i; 4] {
    // SAFETY: the first quarter of the block.
    let first = unsafe { take::<COPY, _>(dst, src, at) };
    // SAFETY: the second quarter.
    let second = unsafe { take::<COPY, _>(dst, src, at + VECTOR) };
    // SAFETY: the third quarter.
    let third = unsafe { take::<COPY, _>(dst, src, at + 2 * VECTOR) };
    // SAFETY: the last quarter.
    let last = unsafe { take::<COPY, _>(dst, src, at + 3 * VECTOR) };
    [first, second, third, last]
}

/// Returns, in each lane of 128 bits, the two factors that advance the halves of a CRC of 128 bits over `BYTES` bytes.
#[target_feature(enable = "avx2,avx512f")]
#[inline]
fn factors<const BYTES: usize>() -> __m512i {
    let [low, high] = const { poly::fold(BYTES) };
    _mm512_broadcast_i32x4(_mm_set_epi64x(high as i64, low as i64))
}

/// Advances `sum` by the factors and adds it to `next`.
#[target_feature(enable = "avx512f,vpclmulqdq")]
#[inline]
fn folded(sum: __m512i, by: __m512i, next: __m512i) -> __m512i {
    // The immediate of the last instruction is a three-way exclusive or.
    let low = _mm512_clmulepi64_epi128::<0x00>(sum, by);
    let high = _mm512_clmulepi64_epi128::<0x11>(sum, by);
    _mm512_ternarylogic_epi64::<0x96>(low, high, next)
}

/// Combines the four lanes into one.
#[target_feature(enable = "avx512f,pclmulqdq")]
#[inline]
fn joined(sum: __m512i) -> __m128i {
    let first = lane::<{ 3 * LANE }>(_mm512_extracti32x4_epi32::<0>(sum));
    let second = lane::<{ 2 * LANE }>(_mm512_extracti32x4_epi32::<1>(sum));
    let third = lane::<LANE>(_mm512_extracti32x4_epi32::<2>(sum));
    let early = _mm_xor_si128(first, second);
    _mm_xor_si128(_mm_xor_si128(early, third), _mm512_extracti32x4_epi32::<3>(sum))
}

/// Advances one lane over `BYTES`.
#[target_feature(enable = "sse2,pclmulqdq")]
#[inline]
fn lane<const BYTES: usize>(sum: __m128i) -> __m128i {
    let [low, high] = const { poly::fold(BYTES) };
    let by = _mm_set_epi64x(high as i64, low as i64);
    _mm_xor_si128(_mm_clmulepi64_si128::<0x00>(sum, by), _mm_clmulepi64_si128::<0x11>(sum, by))
}

/// Reduces the last 128 bits to the sum.
#[target_feature(enable = "sse4.2")]
#[inline]
fn reduced(sum: __m128i) -> u32 {
    let low = _mm_crc32_u64(0, _mm_cvtsi128_si64(sum) as u64);
    _mm_crc32_u64(low, _mm_extract_epi64::<1>(sum) as u64) as u32
}

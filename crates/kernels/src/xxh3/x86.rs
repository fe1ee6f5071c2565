//! Hashes four and eight lanes (64-bit parts of a stripe) at a time, with AVX2 and AVX-512.

use core::arch::x86_64::{
    __m256i, __m512i, _mm256_add_epi64, _mm256_mul_epu32, _mm256_set1_epi64x, _mm256_shuffle_epi32,
    _mm256_slli_epi64, _mm256_srli_epi64, _mm256_xor_si256, _mm512_add_epi64, _mm512_mul_epu32,
    _mm512_set1_epi64, _mm512_shuffle_epi32, _mm512_slli_epi64, _mm512_srli_epi64,
    _mm512_ternarylogic_epi64, _mm512_xor_si512,
};

use super::long::{HashLanes, run};
use super::short::PRIME32;
use crate::cpu;
use crate::row::Hash;

pub const AVX2: Hash = Hash {
    name: "xxh3-avx2",
    summary: "four of the eight hash lanes at a time, in 32-byte vectors",
    is_available: || cpu::has(cpu::AVX2),
    copy: avx2::copy,
    sum: avx2::sum,
};

pub const AVX512: Hash = Hash {
    name: "xxh3-avx512",
    summary: "all eight hash lanes at a time, in 64-byte vectors",
    is_available: || cpu::has(cpu::AVX2 | cpu::AVX512),
    copy: avx512::copy,
    sum: avx512::sum,
};

macro_rules! width {
    ($module:ident, $vector:ty, $stripe:literal, $features:literal) => {
        mod $module {
            use super::*;

            /// # Safety
            /// The contract of [`Hash::copy`].
            #[target_feature(enable = $features)]
            pub unsafe fn copy(dst: *mut u8, src: *const u8, n: usize) -> u64 {
                // SAFETY: guaranteed by the caller.
                unsafe { run::<$vector, $stripe, true>(dst, src, n) }
            }

            /// # Safety
            /// The contract of [`Hash::sum`].
            #[target_feature(enable = $features)]
            pub unsafe fn sum(src: *const u8, n: usize) -> u64 {
                // SAFETY: guaranteed by the caller; nothing is written.
                unsafe { run::<$vector, $stripe, false>(core::ptr::null_mut(), src, n) }
            }
        }
    };
}

width!(avx2, __m256i, 2, "avx2");
width!(avx512, __m512i, 1, "avx2,avx512f,avx512bw,avx512vl");

/// Swaps the two lanes of each pair.
const SWAP: i32 = 0b01_00_11_10;

impl HashLanes for __m256i {
    #[inline(always)]
    unsafe fn plus(self, data: Self, secret: Self) -> Self {
        // SAFETY: the caller guarantees AVX2.
        unsafe { plus_256(self, data, secret) }
    }

    #[inline(always)]
    unsafe fn scrambled(self, secret: Self) -> Self {
        // SAFETY: the caller guarantees AVX2.
        unsafe { scrambled_256(self, secret) }
    }
}

impl HashLanes for __m512i {
    #[inline(always)]
    unsafe fn plus(self, data: Self, secret: Self) -> Self {
        // SAFETY: the caller guarantees AVX-512.
        unsafe { plus_512(self, data, secret) }
    }

    #[inline(always)]
    unsafe fn scrambled(self, secret: Self) -> Self {
        // SAFETY: the caller guarantees AVX-512.
        unsafe { scrambled_512(self, secret) }
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn plus_256(sums: __m256i, data: __m256i, secret: __m256i) -> __m256i {
    let key = _mm256_xor_si256(data, secret);
    let product = _mm256_mul_epu32(key, _mm256_srli_epi64::<32>(key));
    let swapped = _mm256_shuffle_epi32::<SWAP>(data);
    _mm256_add_epi64(sums, _mm256_add_epi64(product, swapped))
}

#[target_feature(enable = "avx2")]
#[inline]
fn scrambled_256(sums: __m256i, secret: __m256i) -> __m256i {
    let prime = _mm256_set1_epi64x(PRIME32[0] as i64);
    let word = _mm256_xor_si256(_mm256_xor_si256(sums, _mm256_srli_epi64::<47>(sums)), secret);
    let low = _mm256_mul_epu32(word, prime);
    let high = _mm256_mul_epu32(_mm256_srli_epi64::<32>(word), prime);
    _mm256_add_epi64(low, _mm256_slli_epi64::<32>(high))
}

#[target_feature(enable = "avx512f")]
#[inline]
fn plus_512(sums: __m512i, data: __m512i, secret: __m512i) -> __m512i {
    let key = _mm512_xor_si512(data, secret);
    let product = _mm512_mul_epu32(key, _mm512_srli_epi64::<32>(key));
    let swapped = _mm512_shuffle_epi32::<SWAP>(data);
    _mm512_add_epi64(sums, _mm512_add_epi64(product, swapped))
}

#[target_feature(enable = "avx512f")]
#[inline]
fn scrambled_512(sums: __m512i, secret: __m512i) -> __m512i {
    let prime = _mm512_set1_epi64(PRIME32[0] as i64);
    // The immediate is a three-way exclusive or.
    let word = _mm512_ternarylogic_epi64::<0x96>(sums, _mm512_srli_epi64::<47>(sums), secret);
    let low = _mm512_mul_epu32(word, prime);
    let high = _mm512_mul_epu32(_mm512_srli_epi64::<32>(word), prime);
    _mm512_add_epi64(low, _mm512_slli_epi64::<32>(high))
}

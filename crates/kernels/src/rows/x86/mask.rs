//! Short sizes in one masked load and one masked store, regardless of the size: no branch can be mispredicted.
//!
//! Masked accesses have two costs. First, an access that reaches into an unmapped or unwritable page takes a fault assist of
//! hundreds of cycles, even if the lanes there are masked off. This kernel therefore uses a mask only if no page boundary is
//! near. Second, a load directly after a masked store waits for the store. The store of a whole vector needs no mask and causes
//! no such delay. Longer sizes use the loops of avx2 and avx512.

use core::arch::x86_64::{
    __m128i, __m256i, __m512i, _bzhi_u32, _bzhi_u64, _mm_mask_storeu_epi8, _mm_maskz_loadu_epi8,
    _mm256_mask_storeu_epi8, _mm256_maskz_loadu_epi8, _mm512_mask_storeu_epi8,
    _mm512_maskz_loadu_epi8,
};

use crate::cpu;
use crate::row::Kernel;
use crate::rows::vector::behind;
use crate::rows::x86::four::from_a_vector;
use crate::word::Vector;

/// The smallest page size: a page is mapped as a whole or not at all.
const PAGE: usize = 4096;

/// Returns `true` if `wide` bytes from both addresses each stay inside one page.
#[inline(always)]
fn fits(dst: *mut u8, src: *const u8, wide: usize) -> bool {
    (dst.addr() % PAGE).max(src.addr() % PAGE) <= PAGE - wide
}

/// # Safety
/// `src` is readable and `dst` writable for `n < 16` bytes.
#[target_feature(enable = "avx2,bmi2,avx512f,avx512bw,avx512vl")]
#[inline]
unsafe fn masked128(dst: *mut u8, src: *const u8, n: usize) {
    let mask = _bzhi_u32(!0, n as u32) as u16;
    // SAFETY: only the first `n` lanes are accessed.
    let bytes = unsafe { _mm_maskz_loadu_epi8(mask, src.cast()) };
    // SAFETY: only the first `n` lanes are accessed.
    unsafe { _mm_mask_storeu_epi8(dst.cast(), mask, bytes) };
}

/// # Safety
/// `src` is readable and `dst` writable for `n < 32` bytes.
#[target_feature(enable = "avx2,bmi2,avx512f,avx512bw,avx512vl")]
#[inline]
unsafe fn masked256(dst: *mut u8, src: *const u8, n: usize) {
    let mask = _bzhi_u32(!0, n as u32);
    // SAFETY: only the first `n` lanes are accessed.
    let bytes = unsafe { _mm256_maskz_loadu_epi8(mask, src.cast()) };
    // SAFETY: only the first `n` lanes are accessed.
    unsafe { _mm256_mask_storeu_epi8(dst.cast(), mask, bytes) };
}

/// # Safety
/// `src` is readable and `dst` writable for `n < 64` bytes.
#[target_feature(enable = "avx2,bmi2,avx512f,avx512bw,avx512vl")]
#[inline]
unsafe fn masked512(dst: *mut u8, src: *const u8, n: usize) {
    let mask = _bzhi_u64(!0, n as u32);
    // SAFETY: only the first `n` lanes are accessed.
    let bytes = unsafe { _mm512_maskz_loadu_epi8(mask, src.cast()) };
    // SAFETY: only the first `n` lanes are accessed.
    unsafe { _mm512_mask_storeu_epi8(dst.cast(), mask, bytes) };
}

macro_rules! below {
    ($name:ident, $vector:ty, $masked:ident) => {
        /// Copies less than a vector, in one masked move if no page boundary is near. Returns `false`, and does nothing, for
        /// larger sizes.
        ///
        /// # Safety
        /// `src` is readable and `dst` writable for `n` bytes; they may overlap.
        #[target_feature(enable = "avx2,bmi2,avx512f,avx512bw,avx512vl")]
        #[inline]
        unsafe fn $name(dst: *mut u8, src: *const u8, n: usize) -> bool {
            if n >= size_of::<$vector>() {
                return false;
            }
            // For `n == 0` the pointers may be dangling.
            if n != 0 && fits(dst, src, size_of::<$vector>()) {
                // SAFETY: guaranteed by the caller, and `n` is less than a vector. Everything is read before anything is written.
                unsafe { $masked(dst, src, n) };
            } else {
                // SAFETY: guaranteed by the caller, and `n` is less than a vector.
                unsafe { <$vector>::copy_below(dst, src, n) };
            }
            true
        }
    };
}

below!(below_16, __m128i, masked128);
below!(below_32, __m256i, masked256);
below!(below_64, __m512i, masked512);

/// Copies up to 64 bytes. Returns `false`, and does nothing, for larger sizes.
///
/// # Safety
/// `src` is readable and `dst` writable for `n` bytes; they may overlap.
#[target_feature(enable = "avx2,bmi2,avx512f,avx512bw,avx512vl")]
#[inline]
unsafe fn upto_64(dst: *mut u8, src: *const u8, n: usize) -> bool {
    // In this order, sizes that need no mask take one comparison.
    if n >= size_of::<__m128i>() {
        // SAFETY: guaranteed by the caller, and `n` is at least 16.
        return unsafe { from_a_vector(dst, src, n) };
    }
    // SAFETY: guaranteed by the caller.
    unsafe { below_16(dst, src, n) }
}

behind! {
    MASK128, "mask128",
    "up to 15 bytes in one masked move; 16 to 64 in four overlapping moves; larger sizes as in avx512",
    || cpu::has(cpu::AVX2 | cpu::AVX512), by128, upto_64, __m512i, "avx2,bmi2,avx512f,avx512bw,avx512vl"
}
behind! {
    MASK256, "mask256",
    "up to 31 bytes in one masked move that stays within a page; otherwise like avx2",
    || cpu::has(cpu::AVX2 | cpu::AVX512), by256, below_32, __m256i, "avx2,bmi2,avx512f,avx512bw,avx512vl"
}
behind! {
    MASK512, "mask512",
    "up to 63 bytes in one masked move that stays within a page; otherwise like avx512",
    || cpu::has(cpu::AVX2 | cpu::AVX512), by512, below_64, __m512i, "avx2,bmi2,avx512f,avx512bw,avx512vl"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_masked_move_stays_inside_the_pages_of_its_bytes() {
        let place = |at: usize| core::ptr::without_provenance_mut::<u8>(7 * PAGE + at);
        for wide in [16, 32, 64] {
            for at in 0..PAGE {
                let inside = at + wide <= PAGE;
                assert_eq!(fits(place(at), place(0), wide), inside, "sink at {at}");
                assert_eq!(fits(place(0), place(at), wide), inside, "source at {at}");
            }
        }
    }
}

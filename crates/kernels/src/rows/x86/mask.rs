//! Short sizes in one masked load and one masked store, whatever the size: nothing to mispredict.
//!
//! Two prices. A masked access that touches an unmapped or unwritable page is right but takes a
//! fault assist of hundreds of cycles even if the lanes there are masked off; the guard avoids it.
//! And a load right behind a masked store waits for it: a whole vector, which needs no mask, has none.
//! Long sizes are those of avx2 and avx512.

use core::arch::x86_64::{
    __m256i, __m512i, _bzhi_u32, _bzhi_u64, _mm256_mask_storeu_epi8, _mm256_maskz_loadu_epi8,
    _mm512_mask_storeu_epi8, _mm512_maskz_loadu_epi8,
};

use crate::cpu;
use crate::row::Kernel;
use crate::rows::vector;
use crate::word::Vector;

/// The smallest page: what lies in one is mapped as a whole or not at all.
const PAGE: usize = 4096;

pub const MASK256: Kernel = Kernel {
    name: "mask256",
    summary: "below 32 bytes in one masked move, never across a page end; else as avx2",
    is_available: || cpu::has(cpu::AVX2 | cpu::AVX512),
    copy: by256::copy,
    move_: Some(by256::move_),
};

pub const MASK512: Kernel = Kernel {
    name: "mask512",
    summary: "below 64 bytes in one masked move, never across a page end; else as avx512",
    is_available: || cpu::has(cpu::AVX2 | cpu::AVX512),
    copy: by512::copy,
    move_: Some(by512::move_),
};

/// Whether `wide` bytes from both places stay inside one page each.
#[inline(always)]
fn fits(dst: *mut u8, src: *const u8, wide: usize) -> bool {
    (dst.addr() % PAGE).max(src.addr() % PAGE) <= PAGE - wide
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

macro_rules! masked {
    ($module:ident, $vector:ty, $masked:ident) => {
        mod $module {
            use super::*;

            const WIDE: usize = size_of::<$vector>();

            /// Less than a vector, in one masked move if that lies well.
            ///
            /// # Safety
            /// `src` is readable and `dst` writable for `n < WIDE` bytes; they may overlap.
            #[target_feature(enable = "avx2,bmi2,avx512f,avx512bw,avx512vl")]
            #[inline]
            unsafe fn below(dst: *mut u8, src: *const u8, n: usize) {
                // The pointers of nothing at all may point nowhere.
                if n != 0 && fits(dst, src, WIDE) {
                    // SAFETY: the same contract; read before it is written.
                    unsafe { $masked(dst, src, n) };
                } else {
                    // SAFETY: the same contract.
                    unsafe { <$vector>::copy_below(dst, src, n) };
                }
            }

            masked!(@copy $vector, copy, copy_vectors);
            masked!(@copy $vector, move_, move_vectors);
        }
    };
    (@copy $vector:ty, $name:ident, $vectors:ident) => {
        /// # Safety
        /// The contract of [`Kernel::copy`] or [`Kernel::move_`].
        #[target_feature(enable = "avx2,bmi2,avx512f,avx512bw,avx512vl")]
        pub unsafe extern "C" fn $name(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
            if n < WIDE {
                // SAFETY: the same contract, and less than a vector.
                unsafe { below(dst, src, n) };
            } else {
                // SAFETY: the same contract, and a vector at least.
                unsafe { vector::$vectors::<$vector>(dst, src, n) };
            }
            dst
        }
    };
}

masked!(by256, __m256i, masked256);
masked!(by512, __m512i, masked512);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_masked_move_stays_inside_the_pages_of_its_bytes() {
        let place = |at: usize| core::ptr::without_provenance_mut::<u8>(7 * PAGE + at);
        for wide in [32, 64] {
            for at in 0..PAGE {
                let inside = at + wide <= PAGE;
                assert_eq!(fits(place(at), place(0), wide), inside, "sink at {at}");
                assert_eq!(fits(place(0), place(at), wide), inside, "source at {at}");
            }
        }
    }
}

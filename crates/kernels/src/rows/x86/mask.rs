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
use crate::word::{load, store};

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

/// Whether there are fewer than `wide` bytes, and `wide` from both places stay inside one page each.
/// Nothing at all is not even one byte, and its pointers may point nowhere.
#[inline(always)]
fn fits(dst: *mut u8, src: *const u8, n: usize, wide: usize) -> bool {
    n.wrapping_sub(1) < wide - 1 && (dst.addr() % PAGE).max(src.addr() % PAGE) <= PAGE - wide
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

            /// Does the sizes of up to a vector that lie well, and says whether it did.
            ///
            /// # Safety
            /// The contract of [`Kernel::copy`] and [`Kernel::move_`].
            #[target_feature(enable = "avx2,bmi2,avx512f,avx512bw,avx512vl")]
            #[inline]
            unsafe fn done(dst: *mut u8, src: *const u8, n: usize) -> bool {
                if fits(dst, src, n, WIDE) {
                    // SAFETY: less than a vector, says `fits`; read before it is written.
                    unsafe { $masked(dst, src, n) };
                    return true;
                }
                if n == WIDE {
                    // SAFETY: a whole vector is readable.
                    let whole: [$vector; 1] = unsafe { load(src, 0) };
                    // SAFETY: and writable.
                    unsafe { store(dst, 0, whole) };
                    return true;
                }
                false
            }

            masked!(@copy $vector, copy);
            masked!(@copy $vector, move_);
        }
    };
    (@copy $vector:ty, $name:ident) => {
        /// # Safety
        /// The contract of [`Kernel::copy`] or [`Kernel::move_`].
        #[target_feature(enable = "avx2,bmi2,avx512f,avx512bw,avx512vl")]
        pub unsafe extern "C" fn $name(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
            // SAFETY: the same contract.
            if !unsafe { done(dst, src, n) } {
                // SAFETY: the same contract.
                unsafe { vector::$name::<$vector>(dst, src, n) };
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
                assert_eq!(fits(place(at), place(0), wide - 1, wide), inside, "sink at {at}");
                assert_eq!(fits(place(0), place(at), 1, wide), inside, "source at {at}");
            }
            assert!(!fits(place(0), place(0), wide, wide), "a whole vector needs no mask");
            assert!(!fits(place(0), place(0), 0, wide), "nothing may lie nowhere");
        }
    }
}

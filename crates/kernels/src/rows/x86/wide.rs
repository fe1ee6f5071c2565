//! The vector loop at the three widths of x86-64.

use core::arch::x86_64::__m128i;
#[cfg(not(miri))]
use core::arch::x86_64::{__m256i, __m512i};
use core::ffi::c_int;

#[cfg(not(miri))]
use crate::cpu;
use crate::row::{ALWAYS, Fill, Kernel};
use crate::rows::vector;

/// Defines the functions of one width in a module, and their rows.
macro_rules! width {
    ($module:ident, $copy:ident, $fill:ident, $vector:ty, $name:literal, $summary:literal,
     $available:expr $(, $features:literal)?) => {
        pub const $copy: Kernel = Kernel {
            name: $name,
            summary: $summary,
            is_available: $available,
            copy: $module::copy,
            move_: Some($module::move_),
        };

        pub const $fill: Fill = Fill {
            name: $name,
            summary: $summary,
            is_available: $available,
            fill: $module::fill,
        };

        mod $module {
            use super::*;

            /// # Safety
            /// The contract of [`Kernel::copy`].
            $(#[target_feature(enable = $features)])?
            pub unsafe extern "C" fn copy(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
                // SAFETY: guaranteed by the caller.
                unsafe { vector::copy::<$vector>(dst, src, n) };
                dst
            }

            /// # Safety
            /// The contract of [`Kernel::move_`].
            $(#[target_feature(enable = $features)])?
            pub unsafe extern "C" fn move_(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
                // SAFETY: guaranteed by the caller.
                unsafe { vector::move_::<$vector>(dst, src, n) };
                dst
            }

            /// # Safety
            /// The contract of [`Fill::fill`].
            $(#[target_feature(enable = $features)])?
            pub unsafe extern "C" fn fill(dst: *mut u8, byte: c_int, n: usize) -> *mut u8 {
                // SAFETY: guaranteed by the caller.
                unsafe { vector::fill::<$vector>(dst, byte as u8, n) };
                dst
            }
        }
    };
}

width! {
    sse2, SSE2, SSE2_FILL, __m128i,
    "sse2", "16-byte vectors: overlapping ends, aligned main loop", ALWAYS
}
#[cfg(not(miri))]
width! {
    avx2, AVX2, AVX2_FILL, __m256i,
    "avx2", "32-byte vectors: overlapping ends, aligned main loop",
    || cpu::has(cpu::AVX2), "avx2"
}
#[cfg(not(miri))]
width! {
    avx512, AVX512, AVX512_FILL, __m512i,
    "avx512", "64-byte vectors: overlapping ends, aligned main loop",
    || cpu::has(cpu::AVX2 | cpu::AVX512), "avx2,avx512f,avx512bw,avx512vl"
}

/// Used by [`super::rep`], because its instruction is fast only from low to high addresses.
#[cfg(not(miri))]
pub use sse2::move_ as move_sse2;

//! The vector loop at the three widths of x86-64.

use core::arch::x86_64::__m128i;
#[cfg(not(miri))]
use core::arch::x86_64::{__m256i, __m512i};
use core::ffi::c_int;

#[cfg(not(miri))]
use crate::cpu;
use crate::row::{ALWAYS, Fill, Kernel};
use crate::rows::vector;

macro_rules! width {
    ($module:ident, $vector:ty $(, $features:literal)?) => {
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

width!(sse2, __m128i);
#[cfg(not(miri))]
width!(avx2, __m256i, "avx2");
#[cfg(not(miri))]
width!(avx512, __m512i, "avx2,avx512f,avx512bw,avx512vl");

pub const SSE2: Kernel = Kernel {
    name: "sse2",
    summary: "16-byte vectors: overlapping ends, aligned main loop",
    is_available: ALWAYS,
    copy: sse2::copy,
    move_: Some(sse2::move_),
};

pub const SSE2_FILL: Fill = Fill {
    name: "sse2",
    summary: "16-byte vectors: overlapping ends, aligned main loop",
    is_available: ALWAYS,
    fill: sse2::fill,
};

#[cfg(not(miri))]
pub const AVX2: Kernel = Kernel {
    name: "avx2",
    summary: "32-byte vectors: overlapping ends, aligned main loop",
    is_available: || cpu::has(cpu::AVX2),
    copy: avx2::copy,
    move_: Some(avx2::move_),
};

#[cfg(not(miri))]
pub const AVX2_FILL: Fill = Fill {
    name: "avx2",
    summary: "32-byte vectors: overlapping ends, aligned main loop",
    is_available: || cpu::has(cpu::AVX2),
    fill: avx2::fill,
};

#[cfg(not(miri))]
pub const AVX512: Kernel = Kernel {
    name: "avx512",
    summary: "64-byte vectors: overlapping ends, aligned main loop",
    is_available: || cpu::has(cpu::AVX2 | cpu::AVX512),
    copy: avx512::copy,
    move_: Some(avx512::move_),
};

#[cfg(not(miri))]
pub const AVX512_FILL: Fill = Fill {
    name: "avx512",
    summary: "64-byte vectors: overlapping ends, aligned main loop",
    is_available: || cpu::has(cpu::AVX2 | cpu::AVX512),
    fill: avx512::fill,
};

/// Used by [`super::rep`], because its instruction is fast only from low to high addresses.
#[cfg(not(miri))]
pub use sse2::move_ as move_sse2;

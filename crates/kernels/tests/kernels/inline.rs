//! Tests the inlined kernel at every width, each inside a function that enables its instruction
//! set.

use crate::support;

#[cfg(all(target_arch = "x86_64", not(miri)))]
use thalweg_kernels::cpu;
use thalweg_kernels::{Kernel, inline};

macro_rules! width {
    ($name:ident, $vector:ty, $is_available:expr $(, $features:literal)?) => {
        mod $name {
            use super::*;

            /// # Safety
            /// The contract of [`Kernel::copy`].
            $(#[target_feature(enable = $features)])?
            unsafe extern "C" fn copy(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
                // SAFETY: guaranteed by the caller.
                unsafe { inline::copy::<$vector>(dst, src, n) };
                dst
            }

            pub static ROW: Kernel = {
                // SAFETY: `copy` copies exactly `n` bytes, and the row is available only if the CPU
                // has its features.
                unsafe { Kernel::new(stringify!($name), $is_available, copy, None) }
            };
        }
    };
}

width!(portable, u128, || true);
#[cfg(target_arch = "x86_64")]
width!(sixteen, core::arch::x86_64::__m128i, || true);
#[cfg(all(target_arch = "x86_64", not(miri)))]
width!(thirty_two, core::arch::x86_64::__m256i, || cpu::has(cpu::AVX2), "avx2");
#[cfg(all(target_arch = "x86_64", not(miri)))]
width!(sixty_four, core::arch::x86_64::__m512i, || cpu::has(cpu::AVX512), "avx512f");
// The vector is wider than the registers that the function may use. The compiler splits it, and the
// result is still correct.
#[cfg(target_arch = "x86_64")]
width!(split, core::arch::x86_64::__m512i, || true);
#[cfg(target_arch = "aarch64")]
width!(sixteen, core::arch::aarch64::uint8x16_t, || true);

static WIDTHS: &[&Kernel] = &[
    &portable::ROW,
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    &sixteen::ROW,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    &thirty_two::ROW,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    &sixty_four::ROW,
    #[cfg(target_arch = "x86_64")]
    &split::ROW,
];

#[test]
fn the_inlined_kernel_copies_at_every_width() {
    for &row in WIDTHS {
        if (row.is_available)() {
            eprintln!("{}", row.name);
            support::copies_like_the_oracle(row);
        } else {
            support::skip(
                "the_inlined_kernel_copies_at_every_width",
                &format!("this CPU has no vectors of {} bytes", row.name),
            );
        }
    }
}

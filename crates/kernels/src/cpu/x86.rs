//! The x86-64 features that kernels need. `std` could detect them, but this crate is `no_std`.

use core::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
use core::sync::atomic::{AtomicU32, Ordering};

use super::{Feature, bits_of};

const SSE4_2: u32 = 1;
const PCLMULQDQ: u32 = 1 << 1;
const AVX2_ALONE: u32 = 1 << 2;
const BMI2: u32 = 1 << 3;
const AVX512F: u32 = 1 << 4;
const AVX512BW: u32 = 1 << 5;
const AVX512DQ: u32 = 1 << 6;
const AVX512VL: u32 = 1 << 7;
const VPCLMULQDQ: u32 = 1 << 8;
const ASKED: u32 = 1 << 31;

pub const FEATURES: &[Feature] = &[
    ("sse4.2", SSE4_2),
    ("pclmulqdq", PCLMULQDQ),
    ("avx2", AVX2_ALONE),
    ("bmi2", BMI2),
    ("avx512f", AVX512F),
    ("avx512bw", AVX512BW),
    ("avx512dq", AVX512DQ),
    ("avx512vl", AVX512VL),
    ("vpclmulqdq", VPCLMULQDQ),
];

/// AVX2 and BMI2.
pub const AVX2: u32 = AVX2_ALONE | BMI2;
/// AVX-512 F, BW, DQ and VL; use together with [`AVX2`].
pub const AVX512: u32 = AVX512F | AVX512BW | AVX512DQ | AVX512VL;
/// SSE4.2 (the crc32 instruction) and PCLMULQDQ.
pub const CRC: u32 = SSE4_2 | PCLMULQDQ;
/// VPCLMULQDQ; use together with [`AVX512`].
pub const VPCLMUL: u32 = VPCLMULQDQ;

static KNOWN: AtomicU32 = AtomicU32::new(0);

/// Returns `true` if all features in `wanted` may be used.
#[inline]
pub fn has(wanted: u32) -> bool {
    // Relaxed is sufficient: no other data depends on the word, and a second detection gives an equal result.
    let known = KNOWN.load(Ordering::Relaxed);
    let known = if known & ASKED == 0 { ask() } else { known };
    known & wanted == wanted
}

/// Returns the names of the usable features, in the order of the table.
pub fn usable() -> impl Iterator<Item = &'static str> {
    FEATURES.iter().filter(|(_, bit)| has(*bit)).map(|(name, _)| *name)
}

/// Hides the features in a list, for programs with an environment that this crate cannot read. It must be called before
/// the first query. If the list is invalid, it hides nothing and returns `false`.
pub fn hide(list: &[u8]) -> bool {
    let hidden = bits_of(list);
    keep(hidden.unwrap_or(0));
    hidden.is_ok()
}

#[cold]
fn ask() -> u32 {
    #[cfg(feature = "std")]
    let hidden = super::environment::hidden_or_shown();
    #[cfg(not(feature = "std"))]
    let hidden = 0;
    keep(hidden)
}

fn keep(hidden: u32) -> u32 {
    let known = ASKED | detect() & !hidden;
    KNOWN.store(known, Ordering::Relaxed);
    known
}

// Until Rust 1.94 the intrinsic was marked unsafe.
#[allow(unused_unsafe)]
fn leaf(leaf: u32) -> [u32; 4] {
    // SAFETY: every x86-64 CPU has the cpuid instruction.
    let r = unsafe { __cpuid_count(leaf, 0) };
    [r.eax, r.ebx, r.ecx, r.edx]
}

#[allow(unused_unsafe)]
fn last_leaf() -> u32 {
    // SAFETY: as in `leaf`.
    unsafe { __cpuid(0) }.eax
}

#[target_feature(enable = "xsave")]
fn saved_state() -> u64 {
    // SAFETY: the only caller has checked OSXSAVE, without which the instruction is undefined.
    unsafe { _xgetbv(0) }
}

fn detect() -> u32 {
    let given = |word: u32, n: u32, feature: u32| if word >> n & 1 == 1 { feature } else { 0 };
    let [_, _, ecx, _] = leaf(1);
    let mut found = given(ecx, 20, SSE4_2) | given(ecx, 1, PCLMULQDQ);
    // The OS must save the wide registers on a context switch, otherwise their contents would be lost.
    let (osxsave, avx) = (ecx >> 27 & 1 == 1, ecx >> 28 & 1 == 1);
    if !(osxsave && avx) || last_leaf() < 7 {
        return found;
    }
    // SAFETY: OSXSAVE was checked above.
    let state = unsafe { saved_state() };
    let [_, ebx, ecx, _] = leaf(7);
    if state & 0x06 == 0x06 {
        found |= given(ebx, 5, AVX2_ALONE) | given(ebx, 8, BMI2);
        // Zen 3 and Alder Lake support VPCLMULQDQ for 32-byte vectors, without AVX-512.
        found |= given(ecx, 10, VPCLMULQDQ);
    }
    if state & 0xe6 == 0xe6 {
        found |= given(ebx, 16, AVX512F) | given(ebx, 17, AVX512DQ);
        found |= given(ebx, 30, AVX512BW) | given(ebx, 31, AVX512VL);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::environment::hidden_bits;
    use super::*;

    #[test]
    fn std_sees_the_same_features_but_for_the_hidden_ones() {
        let hidden = hidden_bits().unwrap();
        macro_rules! same {
            ($($name:tt $feature:ident),*) => {$(
                let expected = is_x86_feature_detected!($name) && hidden & $feature == 0;
                assert_eq!(has($feature), expected, $name);
            )*};
        }
        same!("sse4.2" SSE4_2, "pclmulqdq" PCLMULQDQ, "avx2" AVX2_ALONE, "bmi2" BMI2);
        same!("avx512f" AVX512F, "avx512bw" AVX512BW, "avx512dq" AVX512DQ);
        same!("avx512vl" AVX512VL, "vpclmulqdq" VPCLMULQDQ);
    }
}

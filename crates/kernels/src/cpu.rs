//! What this CPU and the operating system allow, asked once. `std` could say, this crate has none.

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use core::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
    use core::sync::atomic::{AtomicU32, Ordering};

    /// AVX2 and BMI2.
    pub const AVX2: u32 = 1;
    /// AVX-512 F, BW, DQ and VL, on top of [`AVX2`].
    pub const AVX512: u32 = 1 << 1;
    /// SSE4.2 (the crc32 instruction) and PCLMULQDQ.
    pub const CRC: u32 = 1 << 2;
    /// VPCLMULQDQ; use together with [`AVX512`].
    pub const VPCLMUL: u32 = 1 << 3;
    const ASKED: u32 = 1 << 31;

    static FEATURES: AtomicU32 = AtomicU32::new(0);

    /// Whether all of `wanted` may be used.
    #[inline]
    pub fn has(wanted: u32) -> bool {
        // Relaxed: the word is the whole message, and asking twice gives the same answer.
        let known = FEATURES.load(Ordering::Relaxed);
        let known = if known & ASKED == 0 { ask() } else { known };
        known & wanted == wanted
    }

    #[cold]
    fn ask() -> u32 {
        let found = ASKED | detect();
        FEATURES.store(found, Ordering::Relaxed);
        found
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
        // SAFETY: the one caller saw OSXSAVE, without which the instruction is undefined.
        unsafe { _xgetbv(0) }
    }

    fn detect() -> u32 {
        let bit = |word: u32, n: u32| word >> n & 1 == 1;
        let [_, _, ecx, _] = leaf(1);
        let mut found = 0;
        if bit(ecx, 20) && bit(ecx, 1) {
            found |= CRC;
        }
        // The OS must save the wide registers, or they change under our feet.
        if !(bit(ecx, 27) && bit(ecx, 28)) || last_leaf() < 7 {
            return found;
        }
        // SAFETY: bit 27 (OSXSAVE) was checked in the line above.
        let state = unsafe { saved_state() };
        let [_, ebx, ecx, _] = leaf(7);
        if state & 0x06 == 0x06 && bit(ebx, 5) && bit(ebx, 8) {
            found |= AVX2;
            let avx512 = [16, 17, 30, 31].iter().all(|&n| bit(ebx, n));
            if state & 0xe6 == 0xe6 && avx512 {
                found |= AVX512;
                if bit(ecx, 10) {
                    found |= VPCLMUL;
                }
            }
        }
        found
    }

    #[cfg(test)]
    mod tests {
        use super::{AVX2, AVX512, CRC, VPCLMUL, has};

        #[test]
        fn std_sees_the_same_features() {
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2");
            let avx512 = avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            let crc = is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("pclmulqdq");
            assert_eq!(has(AVX2), avx2);
            assert_eq!(has(AVX512), avx512);
            assert_eq!(has(CRC), crc);
            assert_eq!(has(VPCLMUL), avx512 && is_x86_feature_detected!("vpclmulqdq"));
        }
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
pub use x86::{AVX2, AVX512, CRC, VPCLMUL, has};

/// For rows that every CPU of the architecture can run.
pub fn always() -> bool {
    true
}

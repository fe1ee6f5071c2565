//! CPU features, detected once. A feature is usable if the CPU and the operating system support it and the user does not hide it.
//!
//! `THALWEG_CPU=-avx512f,-avx2` makes this machine behave as if it lacked these features. It affects everything that uses this
//! module: the tables, programs that inline kernels, plans and studies. The C library and other crates query the CPU themselves
//! and are not affected.

#[cfg(feature = "std")]
mod environment;
#[cfg(feature = "std")]
pub use environment::hidden;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use x86::FEATURES;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub use x86::{AVX2, AVX512, CRC, VPCLMUL, has, hide, usable};

/// The environment variable that hides features.
pub const VARIABLE: &str = "THALWEG_CPU";

/// A CPU feature that can be hidden: its name as used by compilers, and its bit.
type Feature = (&'static str, u32);

#[cfg(any(not(target_arch = "x86_64"), miri))]
const FEATURES: &[Feature] = &[];

/// Hides the features in a list. This architecture has none, so it returns `false` if the list names any.
#[cfg(any(not(target_arch = "x86_64"), miri))]
pub fn hide(list: &[u8]) -> bool {
    bits_of(list).is_ok()
}

/// Returns the names of the usable features. This architecture has none, because no kernel needs one.
#[cfg(any(not(target_arch = "x86_64"), miri))]
pub fn usable() -> impl Iterator<Item = &'static str> {
    core::iter::empty()
}

/// Always returns `true`: for kernels that every CPU of the architecture can run.
pub fn always() -> bool {
    true
}

/// Returns the bits of a list such as `-avx512f,-avx2`. The error is the invalid word.
fn bits_of(list: &[u8]) -> Result<u32, &[u8]> {
    let mut bits = 0;
    for word in list.split(|byte| *byte == b',').filter(|_| !list.is_empty()) {
        let known = FEATURES.iter().find(|(name, _)| is_hidden_by(word, name.as_bytes()));
        bits |= known.ok_or(word)?.1;
    }
    Ok(bits)
}

// A comparison of slices would call `memcmp`, which the object for LD_PRELOAD must not do.
fn is_hidden_by(word: &[u8], name: &[u8]) -> bool {
    let Some((b'-', hidden)) = word.split_first() else { return false };
    hidden.len() == name.len() && hidden.iter().zip(name).all(|(a, b)| a == b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_of_this_test_hides_what_there_is() {
        hidden().expect("a list of features");
    }

    #[test]
    fn lists_name_features_after_a_minus() {
        assert_eq!(bits_of(b""), Ok(0));
        for list in
            [&b"-avx9"[..], b"avx2", b"-", b",", b"-avx2,", b"-AVX2", b"-avx2 -bmi2", b"\xff"]
        {
            assert!(bits_of(list).is_err(), "{list:?}");
        }
        for (name, bit) in FEATURES {
            let list = format!("-{name},-{name}");
            assert_eq!(bits_of(list.as_bytes()), Ok(*bit));
        }
    }
}

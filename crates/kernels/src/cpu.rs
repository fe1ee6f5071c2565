//! What this CPU and the operating system allow, asked once, less what the user hides.
//!
//! `THALWEG_CPU=-avx512f,-avx2` makes this machine one without these features, for everything that asks
//! here: the tables, programs that inline kernels, plans and studies. The C library and other crates
//! ask the CPU themselves and are not reached by it.

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

/// A CPU feature that can be hidden: its name as compilers write it, and its bit.
type Feature = (&'static str, u32);

#[cfg(any(not(target_arch = "x86_64"), miri))]
const FEATURES: &[Feature] = &[];

/// Hides the features of a list: there are none to hide on this architecture. `false` if it names any.
#[cfg(any(not(target_arch = "x86_64"), miri))]
pub fn hide(list: &[u8]) -> bool {
    bits_of(list).is_ok()
}

/// The features that may be used, by name: no kernel asks for one on this architecture.
#[cfg(any(not(target_arch = "x86_64"), miri))]
pub fn usable() -> impl Iterator<Item = &'static str> {
    core::iter::empty()
}

/// For rows that every CPU of the architecture can run.
pub fn always() -> bool {
    true
}

/// The bits of a list like `-avx512f,-avx2`; what is wrong in it otherwise.
fn bits_of(list: &[u8]) -> Result<u32, &[u8]> {
    let mut bits = 0;
    for word in list.split(|byte| *byte == b',').filter(|_| !list.is_empty()) {
        let known = FEATURES.iter().find(|(name, _)| is_hidden_by(word, name.as_bytes()));
        bits |= known.ok_or(word)?.1;
    }
    Ok(bits)
}

// Not a comparison of slices, which would be a call of memcmp: the preloaded object must not make one.
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

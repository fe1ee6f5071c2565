//! The names of unfinished files and folders, beside the name they will get: one scheme for all
//! commands, so that each of them knows what another has left.

use std::{
    ffi::{CStr, CString, OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};
use thalweg_kernels::xxh3;

/// What an unfinished file or directory is called: `.NAME.thalweg-part`.
pub const PART: &[u8] = b".thalweg-part";
/// What the journal of an unfinished file is called: `.NAME.thalweg-journal`.
pub const JOURNAL: &[u8] = b".thalweg-journal";
/// What the folder of a fleet is called, in which many machines build one tree: `.NAME.thalweg-fleet`.
pub const FLEET: &[u8] = b".thalweg-fleet";
/// The journal in an unfinished directory: which source it is a copy of.
pub const OWN_JOURNAL: &CStr = c".thalweg-journal";

// NAME_MAX of every common file system; where it is less, the caller asks for the short form.
const NAME_MAX: usize = 255;

/// `.NAMEsuffix`, or a short form with a hash of the name where that is too long.
pub fn beside(name: &CStr, suffix: &[u8]) -> CString {
    let long = [b".", name.to_bytes(), suffix].concat();
    if long.len() <= NAME_MAX { c_string(long) } else { short(name, suffix) }
}

/// `.HASHsuffix`: the same length for every name.
pub fn short(name: &CStr, suffix: &[u8]) -> CString {
    let hash = format!(".{:016x}", xxh3(name.to_bytes()));
    c_string([hash.as_bytes(), suffix].concat())
}

/// A part's name that no other process uses, for when the usual one is taken by a living one.
pub fn unique(name: &CStr) -> CString {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Process numbers come again, in a container the first ones always.
    static BEGAN: OnceLock<u128> = OnceLock::new();
    let began = BEGAN.get_or_init(|| {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        since.map_or(0, |since| since.as_nanos())
    });
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let tail = format!(".{}-{began}-{next}", std::process::id());
    beside(name, &[PART, tail.as_bytes()].concat())
}

/// The same for a name of the standard library's.
pub fn unfinished_name(name: &OsStr) -> OsString {
    // No file has a name with a NUL in it.
    let name = CString::new(name.as_bytes()).unwrap_or_default();
    OsString::from_vec(unique(&name).into_bytes())
}

/// Whether a name is one of ours. A source of such a name is not copied: the next run would take
/// the copy for an unfinished file of its own, and remove it.
pub fn is_reserved(name: &CStr) -> bool {
    let name = name.to_bytes();
    // Most names end here.
    if name.first() != Some(&b'.') || name.len() <= PART.len() {
        return false;
    }
    let number = |tail: &[u8]| {
        tail.first() == Some(&b'.') && tail[1..].iter().all(|b| b.is_ascii_digit() || *b == b'-')
    };
    let unique = name.windows(PART.len()).rposition(|window| window == PART);
    name.ends_with(PART)
        || name.ends_with(JOURNAL)
        || name.ends_with(FLEET)
        || unique.is_some_and(|at| number(&name[at + PART.len()..]))
}

fn c_string(bytes: Vec<u8>) -> CString {
    CString::new(bytes).expect("made of NUL-free parts")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_too_long_becomes_a_hash() {
        let name = CString::new(vec![b'x'; 250]).unwrap();
        let part = beside(&name, PART);
        assert!(part.to_bytes().len() < 40);
        assert_eq!(part, beside(&name, PART));
        assert_eq!(beside(c"file", PART).as_c_str(), c".file.thalweg-part");
    }

    #[test]
    fn our_names_are_known_again_and_others_are_not() {
        let long = CString::new(vec![b'x'; 250]).unwrap();
        for name in [c"file", c"\xff", long.as_c_str()] {
            assert!(is_reserved(&beside(name, PART)));
            assert!(is_reserved(&beside(name, JOURNAL)));
            assert!(is_reserved(&beside(name, FLEET)));
            assert!(is_reserved(&unique(name)));
            let unfinished =
                unfinished_name(OsStr::from_bytes(name.to_bytes())).into_encoded_bytes();
            assert!(is_reserved(&CString::new(unfinished).unwrap()));
            assert!(!is_reserved(name));
        }
        assert!(is_reserved(OWN_JOURNAL));
        assert!(!is_reserved(c"file.thalweg-part"));
        assert!(!is_reserved(c".thalweg-part"));
        assert!(!is_reserved(c".file.thalweg-part.rst"));
        assert_ne!(unique(c"a"), unique(c"a"));
    }
}

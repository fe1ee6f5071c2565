//! The names of unfinished files and directories, in the directory of the final name. All commands use the same scheme,
//! so that each recognizes the leftovers of the others.

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

/// Suffix of an unfinished file or directory: `.NAME.thalweg-part`.
pub const PART: &[u8] = b".thalweg-part";
/// Suffix of the journal of an unfinished file: `.NAME.thalweg-journal`.
pub const JOURNAL: &[u8] = b".thalweg-journal";
/// Suffix of a fleet's directory, in which several machines build one tree: `.NAME.thalweg-fleet`.
pub const FLEET: &[u8] = b".thalweg-fleet";
/// Name of the journal inside an unfinished directory. It records the source of the copy.
pub const OWN_JOURNAL: &CStr = c".thalweg-journal";

// NAME_MAX of every common file system. If the limit is lower, the caller uses the short form.
const NAME_MAX: usize = 255;

/// Returns `.NAMEsuffix`, or the short form with a hash of the name if `.NAMEsuffix` is too long.
pub fn beside(name: &CStr, suffix: &[u8]) -> CString {
    let long = [b".", name.to_bytes(), suffix].concat();
    if long.len() <= NAME_MAX { c_string(long) } else { short(name, suffix) }
}

/// Returns `.HASHsuffix`, which has the same length for every name.
pub fn short(name: &CStr, suffix: &[u8]) -> CString {
    let hash = format!(".{:016x}", xxh3(name.to_bytes()));
    c_string([hash.as_bytes(), suffix].concat())
}

/// Returns a partial name that no other process uses. It is needed if a living process has the usual one.
pub fn unique(name: &CStr) -> CString {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Process ids are reused, and in containers the first ids are always the same. The start time distinguishes such
    // processes.
    static BEGAN: OnceLock<u128> = OnceLock::new();
    let began = BEGAN.get_or_init(|| {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        since.map_or(0, |since| since.as_nanos())
    });
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let tail = format!(".{}-{began}-{next}", std::process::id());
    beside(name, &[PART, tail.as_bytes()].concat())
}

/// Like [`unique`], for a name as an [`OsStr`].
pub fn unfinished_name(name: &OsStr) -> OsString {
    // File names never contain NUL.
    let name = CString::new(name.as_bytes()).unwrap_or_default();
    OsString::from_vec(unique(&name).into_bytes())
}

/// Returns `true` if a name is reserved by thalweg. A source entry with such a name is not copied. Otherwise, the next
/// run would take the copy for its own unfinished file and remove it.
pub fn is_reserved(name: &CStr) -> bool {
    let name = name.to_bytes();
    // Fast path: most names do not begin with a dot, or are too short.
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

//! Directories and contents of files.

use std::{fs, path::Path};

/// Returns the names in a directory, sorted, including hidden ones.
///
/// # Panics
/// If the directory cannot be read.
pub fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a directory");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Returns pseudorandom bytes, so that a test detects bytes at a wrong offset.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| next().to_le_bytes()).collect();
    bytes.truncate(len);
    bytes
}

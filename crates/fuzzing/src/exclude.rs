//! Patterns of `--exclude`: no pattern may crash the matcher, and the last pattern that matches decides.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

use thalweg_tree::{ExcludePatterns, Filter};

/// Runs one input: lines of patterns and, after a NUL, lines of paths.
pub fn run(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == 0);
    let (patterns, paths) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let mut list = ExcludePatterns::default();
    list.add_file(patterns);
    let (mut twice, mut all, mut none) = (list.clone(), list.clone(), list.clone());
    twice.add_file(patterns);
    all.add(b"*");
    none.add(b"!*");
    let paths = paths.split(|byte| *byte == b'\n').filter(|path| !path.is_empty());
    for path in paths.take(20).map(|path| Path::new(OsStr::from_bytes(path))) {
        for is_directory in [false, true] {
            let is_out = list.leaves_out(path, is_directory);
            assert!(!(is_out && list.is_empty()));
            assert_eq!(twice.leaves_out(path, is_directory), is_out);
            assert!(all.leaves_out(path, is_directory) && !none.leaves_out(path, is_directory));
        }
    }
}

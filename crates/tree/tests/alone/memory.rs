//! Tests the memory that a large directory needs. The test runs alone in its process, because it
//! reads the peak of the whole process.

use crate::support::{copy, recursive};
use std::fs;
use thalweg_testing::peak_resident;
use thalweg_tree::CopyOptions;

#[test]
fn a_flat_directory_is_streamed() {
    let _alone = thalweg_testing::alone();
    let place = crate::support::scratch();
    let (src, to) = (place.path().join("src"), place.path().join("to"));
    fs::create_dir(&src).unwrap();
    for n in 0..20_000 {
        fs::write(src.join(format!("a file with quite a long name, number {n}")), b"x").unwrap();
    }
    let before = peak_resident();
    let report = copy(&src, &to, &CopyOptions { jobs: 4, ..recursive() });
    let grown = peak_resident().saturating_sub(before);
    assert_eq!((report.files, report.error_count), (20_000, 0));
    assert_eq!(fs::read_dir(&to).unwrap().count(), 20_000);
    // The copy needs four buffers of 256 KiB, stacks and a queue. 20,000 names alone would take 1 MB.
    assert!(grown < 16 << 20, "grew by {grown} bytes");
}

//! Tests names that are not valid text or too long, and trees that are very deep or have many entries.

use crate::support;

use rustix::fs::{CWD, Mode, OFlags, fstat, mkdirat, openat};
use std::{
    ffi::OsStr,
    fs,
    io::Read,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
};
use support::{contents, copy, large, noise, problems, recursive, walk};
use thalweg_tree::{CopyOptions, Target};

#[test]
fn every_byte_but_slash_and_nul_is_a_name() {
    let place = support::scratch();
    let (src, to) = (place.path().join("src"), place.path().join("to"));
    fs::create_dir(&src).unwrap();
    for byte in (1..=255_u8).filter(|byte| *byte != b'/') {
        fs::write(src.join(OsStr::from_bytes(&[b'n', byte])), [byte]).unwrap();
    }
    for name in ["...", " ", "-r", "\n", "a\\b", "*"] {
        fs::create_dir(src.join(name)).unwrap();
    }
    let report = copy(&src, &to, &CopyOptions::archive());
    assert_eq!(report.error_count, 0, "{}", problems(&report));
    assert_eq!(walk(&src), walk(&to));
}

#[test]
fn a_name_as_long_as_possible_still_gets_an_unfinished_one() {
    let place = support::scratch();
    let (src, to) = (place.path().join("src"), place.path().join("to"));
    let long = "x".repeat(255);
    fs::create_dir_all(src.join(&long)).unwrap();
    for (n, len) in [10, large()].into_iter().enumerate() {
        fs::write(src.join(&long).join(format!("{n}{}", "y".repeat(254))), noise(len, 1)).unwrap();
    }
    copy(&src, &to, &recursive());
    assert_eq!(contents(&src), contents(&to));
    // The second copy replaces existing files. The third copy creates a directory with the long name.
    let exact = CopyOptions { target: Target::Exact, ..recursive() };
    copy(&src, &to, &exact);
    assert_eq!(contents(&src), contents(&to));
    copy(&src.join(&long), place.path(), &recursive());
    assert_eq!(contents(&src.join(&long)), contents(&place.path().join(&long)));
    let report = copy(&src, &place.path().join("z".repeat(256)), &recursive());
    assert!(problems(&report).contains("ENAMETOOLONG"), "{}", problems(&report));
}

fn directory(at: &OwnedFd, name: &str) -> OwnedFd {
    openat(at, name, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).unwrap()
}

#[test]
fn paths_longer_than_the_kernel_takes_are_copied() {
    let place = support::scratch();
    let depth = 2500;
    let top = openat(CWD, place.path(), OFlags::DIRECTORY, Mode::empty()).unwrap();
    mkdirat(&top, "src", 0o755.into()).unwrap();
    let mut at = directory(&top, "src");
    for _ in 0..depth {
        mkdirat(&at, "dir", 0o755.into()).unwrap();
        at = directory(&at, "dir");
    }
    let file = openat(&at, "f", OFlags::CREATE | OFlags::WRONLY, 0o644.into()).unwrap();
    thalweg_sys::io::write(&file, b"at the bottom").unwrap();
    for jobs in [1, 3] {
        let to = format!("to{jobs}");
        let options = CopyOptions { jobs, ..CopyOptions::archive() };
        let report = copy(&place.path().join("src"), &place.path().join(&to), &options);
        assert_eq!((report.error_count, report.dirs), (0, depth + 1), "{}", problems(&report));
        let mut at = directory(&top, &to);
        for _ in 0..depth {
            at = directory(&at, "dir");
        }
        let file = openat(&at, "f", OFlags::RDONLY, Mode::empty()).unwrap();
        let mut text = String::new();
        fs::File::from(file).read_to_string(&mut text).unwrap();
        assert_eq!(text, "at the bottom");
        assert!(fstat(&at).is_ok());
    }
}

#[test]
fn a_directory_of_many_directories_is_copied() {
    let place = support::scratch();
    let (src, to) = (place.path().join("src"), place.path().join("to"));
    fs::create_dir(&src).unwrap();
    // More directories than the queue holds before workers enter directories immediately.
    for n in 0..5_000 {
        fs::create_dir(src.join(format!("{n}"))).unwrap();
    }
    let report = copy(&src, &to, &recursive());
    assert_eq!((report.dirs, report.error_count), (5_001, 0));
    assert_eq!(fs::read_dir(&to).unwrap().count(), 5_000);
}

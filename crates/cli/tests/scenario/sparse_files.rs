//! Holes are kept, made or filled as requested, on every pair of file systems, and no byte changes.

use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::Path,
    process::Command,
};

use crate::support::{Scratch, bytes, file_methods, mounts, mounts::ROOMY, run, thalweg};

const LEN: u64 = 24 << 20;
/// Space that a file system may use in addition: a cluster at each end of each piece of data, and its indexes.
const SLACK: u64 = 1 << 20;

fn on_disk(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

/// Makes a file with pieces of data at odd offsets, and a hole at the end.
fn archipelago(path: &Path) {
    File::create(path).unwrap().set_len(LEN).unwrap();
    for (n, at) in [4096, 3_000_001, 9 << 20, (16 << 20) - 1].into_iter().enumerate() {
        bytes::write_at(path, n as u64, at, 100_000 + n);
    }
}

#[track_caller]
fn expect_same(source: &Path, copy: &Path) {
    run(Command::new("cmp").args([source, copy])).expect(0);
}

#[test]
fn holes_survive_between_all_file_systems() {
    let test = "holes_survive_between_all_file_systems";
    let roots: Vec<_> = ROOMY.into_iter().filter_map(|name| mounts().get(test, name)).collect();
    for from in &roots {
        let there = Scratch::within(from);
        let source = there.join("source");
        archipelago(&source);
        for to in &roots {
            let here = Scratch::within(to);
            let copy = here.join("copy");
            let context = format!("{} to {}", from.display(), to.display());
            run(thalweg().arg("copy").args([&source, &copy])).expect(0);
            expect_same(&source, &copy);
            assert!(on_disk(&copy) <= on_disk(&source) + SLACK, "{context}: holes were filled");
            run(thalweg().args(["copy", "-f", "--sparse=never"]).args([&source, &copy])).expect(0);
            expect_same(&source, &copy);
            assert!(on_disk(&copy) >= LEN, "{context}: --sparse=never left holes");
        }
    }
}

#[test]
fn every_mechanism_gets_sparse_files_right() {
    let scratch = Scratch::new();
    let source = scratch.join("source");
    archipelago(&source);
    for method in file_methods() {
        for sparse in ["auto", "always", "never"] {
            let copy = scratch.join("copy");
            let mut command = thalweg();
            command.args(["copy", "--method", &method, "--sparse", sparse]);
            let ran = run(command.args([&source, &copy])).expect_no_panic();
            match ran.code() {
                0 => expect_same(&source, &copy),
                4 => {}
                _ => panic!("{method} --sparse={sparse}: {}", ran.said()),
            }
            drop(fs::remove_file(&copy));
        }
    }
}

#[test]
fn zeros_become_holes_when_asked() {
    let scratch = Scratch::new();
    let (source, copy) = (scratch.join("source"), scratch.join("copy"));
    let mut zeros = vec![0; LEN as usize];
    bytes::fill(1, 0, &mut zeros[5_000_000..5_100_000]);
    *zeros.last_mut().unwrap() = 1;
    fs::write(&source, &zeros).unwrap();
    for options in [&["--sparse=always"][..], &["--sparse=always", "--resume"]] {
        run(thalweg().arg("copy").args(options).args([&source, &copy])).expect(0);
        expect_same(&source, &copy);
        assert!(on_disk(&copy) <= SLACK, "{options:?}: {} bytes on disk", on_disk(&copy));
        fs::remove_file(&copy).unwrap();
    }
    let mut stream = thalweg();
    stream.args(["copy", "--sparse=always", "-"]).arg(&copy).stdin(File::open(&source).unwrap());
    run(&mut stream).expect(0);
    expect_same(&source, &copy);
}

#[test]
fn a_file_that_is_one_hole_keeps_its_length() {
    let scratch = Scratch::new();
    let (source, copy) = (scratch.join("source"), scratch.join("copy"));
    // The size does not fit 32 bits. The copy is fast only if it skips the hole.
    File::create(&source).unwrap().set_len((5 << 30) + 1).unwrap();
    run(thalweg().arg("copy").args([&source, &copy])).expect(0);
    assert_eq!(fs::metadata(&copy).unwrap().len(), (5 << 30) + 1);
    assert!(on_disk(&copy) <= SLACK);
}

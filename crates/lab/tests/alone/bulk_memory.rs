//! Tests of the memory and the page faults of a bulk transfer. Both counts include the whole process, so one test runs
//! at a time, and no other tests are in this process.

use std::path::Path;
use thalweg_lab::arms::{ArmJob, CATALOGUE};

const PROGRAM: &str = env!("CARGO_BIN_EXE_thalweg-lab-helper");

#[test]
fn knobs_are_set_and_new_memory_faults_on_the_side_where_it_is() {
    let _alone = thalweg_testing::alone();
    let scratch = tempfile::tempdir().unwrap();
    let bytes = 8 << 20;
    let faults = |with: &str| {
        let with: toml::Table = with.parse().unwrap();
        let (scratch, program) = (scratch.path(), Path::new(PROGRAM));
        let job = ArmJob { arm: "arm", with: &with, bytes, scratch, studies: scratch, program };
        let mut piece = CATALOGUE.arm_kind("bulk").unwrap().open(&job).unwrap();
        piece.warm_up().unwrap();
        piece.sample(1).unwrap();
        let sample = piece.sample(1).unwrap();
        (sample.minor_faults, sample.calls.unwrap())
    };
    let (warm, _) = faults("arm = 'ring'\ntuning = { slot = '64KiB', slots = 8 }");
    let (fresh, _) = faults("arm = 'ring'\nresidency = 'fresh'");
    let (new, _) = faults("arm = 'shm-locked'\ntuning = { fresh = 1 }\nfaults = true");
    let pages = bytes / rustix::param::page_size() as u64;
    assert!(warm < pages / 16, "{warm} faults on memory used before");
    assert!(fresh >= pages && new >= pages, "{fresh} and {new} faults for {pages} pages");
    let (_, few) = faults("arm = 'unix-stream'\ntuning = { piece = '1MiB' }");
    let (_, many) = faults("arm = 'unix-stream'\ntuning = { piece = '64KiB' }");
    assert!(many > few, "{many} calls by pieces of 64 KiB, {few} by those of 1 MiB");
}

#[test]
fn a_ring_takes_little_memory_besides_the_data_and_a_locked_copy_as_much_again() {
    let _alone = thalweg_testing::alone();
    let scratch = tempfile::tempdir().unwrap();
    let (scratch, program) = (scratch.path(), Path::new(PROGRAM));
    let extra = |way: &str| {
        let with: toml::Table = format!("bytes = 33554432\nway = {{ {way} }}").parse().unwrap();
        let job = ArmJob { arm: "arm", with: &with, bytes: 0, scratch, studies: scratch, program };
        let found = CATALOGUE.probe("bulk-memory").unwrap().run(&job).unwrap();
        eprintln!("{way}: {}", found.text);
        found.numbers[0]
    };
    let (ring, locked) = (extra("arm = 'ring'"), extra("arm = 'shm-locked'"));
    assert!(ring < 8.0 && locked > 30.0 && locked < 40.0, "{ring} MiB, {locked} MiB");
}

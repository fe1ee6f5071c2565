//! Power cuts: a command runs on a disk that logs its writes and flushes. For some moments of the log, the test builds
//! the disk that a cut would leave. It mounts this disk and runs the same command as after a reboot. `THALWEG_CUTS=100`
//! makes the campaign longer, and `THALWEG_CUT_SYSTEM=all` tries every file system. `tests/setup/power-cut` runs a part
//! of the campaign.

use std::{fs::File, path::Path, process::Command};

use crate::support::{
    Scratch,
    fuse::disk::{DiskEvent, FuseDisk, REQUEST_KIB},
    loop_disk::LoopDevice,
    run, skip,
    skip::{has_tools, is_root},
};
use thalweg_testing::{Dice, from_env};

mod campaign;
pub mod command;
pub mod contents;
mod cut;
mod judge;
pub mod place;
mod reboot;
mod recording;
mod sync;
pub mod system;

use campaign::Campaign;
use command::CutCase;
use system::{DiskSystem, SYSTEMS};

/// Returns `true` if this machine can simulate power cuts; otherwise records a skip.
pub fn may_cut(test: &str) -> bool {
    if !is_root(test) || !has_tools(test, &["losetup", "unshare", "sha256sum"]) {
        return false;
    }
    let missing = reboot::missing();
    if let Some(reason) = &missing {
        skip(test, reason);
    }
    missing.is_none()
}

/// Returns `true` if an environment variable is unset, is `all`, or is this name.
pub fn is_wanted(name: &str, variable: &str) -> bool {
    std::env::var(variable).map_or(true, |wanted| wanted == "all" || wanted == name)
}

/// Returns the file systems for one command: all or the one that `THALWEG_CUT_SYSTEM` names, otherwise a random one.
pub fn chosen_systems(test: &str, case: &str) -> Vec<&'static DiskSystem> {
    if std::env::var_os("THALWEG_CUT_SYSTEM").is_none() {
        let mut dice = Dice::new(&format!("{test}: the file system for {case}"));
        return vec![&SYSTEMS[dice.below(SYSTEMS.len() as u64) as usize]];
    }
    SYSTEMS.iter().filter(|system| is_wanted(system.name, "THALWEG_CUT_SYSTEM")).collect()
}

/// Runs campaigns of power cuts for these commands.
#[track_caller]
fn cut(test: &str, cases: &[&str]) {
    if !may_cut(test) {
        return;
    }
    let mut failures = Vec::new();
    for case in cases.iter().filter(|case| is_wanted(case, "THALWEG_CUT_COMMAND")) {
        for system in chosen_systems(test, case) {
            if has_tools(test, &[system.mkfs]) {
                let campaign = Campaign::new(test, CutCase::named(case), system);
                failures.extend(campaign.run(from_env("THALWEG_CUTS", 1)).unwrap_or_default());
            }
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn a_copy_is_resumed_right_after_a_power_cut() {
    cut("a_copy_is_resumed_right_after_a_power_cut", &["copy", "copy-parallel"]);
}

#[test]
fn a_copy_with_fsync_is_whole_after_a_power_cut() {
    let test = "a_copy_with_fsync_is_whole_after_a_power_cut";
    cut(test, &["copy-fsync", "copy-into-fsync", "fleet-fsync"]);
}

#[test]
fn a_file_that_copy_replaces_is_old_or_new_after_a_power_cut() {
    cut("a_file_that_copy_replaces_is_old_or_new_after_a_power_cut", &["copy-into"]);
}

#[test]
fn a_file_that_receive_replaces_is_old_or_new_after_a_power_cut() {
    cut(
        "a_file_that_receive_replaces_is_old_or_new_after_a_power_cut",
        &["receive", "receive-fsync"],
    );
}

#[test]
fn a_fetched_file_is_old_or_new_after_a_power_cut() {
    cut("a_fetched_file_is_old_or_new_after_a_power_cut", &["fetch", "fetch-fsync"]);
}

#[test]
fn a_fetched_tree_is_continued_right_after_a_power_cut() {
    let test = "a_fetched_tree_is_continued_right_after_a_power_cut";
    cut(test, &["fetch-tree", "fetch-tree-into", "fetch-tree-fsync"]);
}

#[test]
fn a_fleet_is_continued_right_after_a_power_cut() {
    cut("a_fleet_is_continued_right_after_a_power_cut", &["fleet"]);
}

#[test]
fn a_sync_is_continued_right_after_a_power_cut() {
    let test = "a_sync_is_continued_right_after_a_power_cut";
    cut(test, &["sync", "sync-reference"]);
}

#[test]
fn a_sync_that_deletes_loses_nothing_in_a_power_cut() {
    let test = "a_sync_that_deletes_loses_nothing_in_a_power_cut";
    cut(test, &["sync-into", "sync-into-fsync", "sync-trash"]);
}

#[test]
fn a_move_has_written_everything_before_it_deletes() {
    cut("a_move_has_written_everything_before_it_deletes", &["move"]);
}

#[test]
fn requests_of_a_loop_device_are_logged_in_their_order() {
    let test = "requests_of_a_loop_device_are_logged_in_their_order";
    if !may_cut(test) || !has_tools(test, &["dd"]) {
        return;
    }
    let scratch = Scratch::new();
    let (image, served) = (scratch.join("image"), scratch.folder("served"));
    File::create(&image).unwrap().set_len(1 << 20).unwrap();
    let Some(fuse) = FuseDisk::serve(test, &image, &served) else { return };
    let device = LoopDevice::attach(&fuse.file()).with_requests_of(REQUEST_KIB);
    let write = |block: &str, words: [&str; 2]| {
        let mut dd = Command::new("dd");
        dd.args(["if=/dev/urandom", "bs=64K", "count=1", &format!("seek={block}")]).args(words);
        run(dd.arg(format!("of={}", device.path().display()))).expect(0);
    };
    // Makes a write with a later flush, a write with O_DSYNC, and a write without a flush.
    write("3", ["oflag=direct", "conv=fsync"]);
    write("5", ["oflag=direct,dsync", "conv=notrunc"]);
    write("7", ["oflag=direct", "conv=notrunc"]);
    let label = |event: &DiskEvent| match event {
        DiskEvent::Write { offset, bytes } => format!("write {} of {}", offset >> 16, bytes.len()),
        DiskEvent::Flush => "flush".to_owned(),
    };
    let mut log: Vec<_> = fuse.take_log().iter().map(label).collect();
    // The kernel may send additional flushes, and sends one when it attaches the device.
    log.dedup();
    let first = log.iter().position(|label| label != "flush").unwrap_or(0);
    let expected = ["write 3 of 65536", "flush", "write 5 of 65536", "flush", "write 7 of 65536"];
    assert_eq!(log[first..], expected);
    drop(device);
}

/// Does nothing unless `THALWEG_CUT_REPEAT` names a directory in which a failing cut was kept.
#[test]
fn a_kept_power_cut_is_repeated() {
    if let Some(kept) = std::env::var_os("THALWEG_CUT_REPEAT") {
        campaign::repeat(Path::new(&kept)).unwrap_or_else(|reason| panic!("{reason}"));
    }
}

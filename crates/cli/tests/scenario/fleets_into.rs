//! `copy -a -T --shard` into an existing directory. The result must equal that of `cp -a` into a copy of this
//! directory.

use rustix::process::Signal;
use std::{fs, process::Command, thread, time::Duration};

use crate::support::{
    Running, Scratch, bytes,
    fleet::{expect_same, fleet, has_plan, of_fleet, plant, rank, start_slowly},
    names, run, thalweg,
};
use thalweg_testing::{Dice, from_env};

/// Makes a tree, an older copy that differs from it, and the expected result: `cp -a` of the tree into a second older
/// copy.
fn plant_both() -> Scratch {
    let scratch = Scratch::new();
    plant(scratch.path());
    let cp = |from: &str, to: &str| {
        let ran =
            Command::new("cp").args(["-a", "-T", from, to]).current_dir(scratch.path()).status();
        assert!(ran.unwrap().success());
    };
    cp("tree", "copy");
    let copy = scratch.join("copy");
    for changed in ["folder-0/deeper/7", "folder-2/deeper/large"] {
        fs::write(copy.join(changed), "old").unwrap();
    }
    for gone in ["folder-3", "folder-1/deeper"] {
        fs::remove_dir_all(copy.join(gone)).unwrap();
    }
    fs::create_dir_all(copy.join("own/below")).unwrap();
    bytes::write(&copy.join("own/below/file"), 5, 5000);
    fs::write(copy.join("folder-0/own"), "of the copy").unwrap();
    // A file of the copy has two names. The tree has one of them.
    fs::remove_file(copy.join("folder-2/deeper/3")).unwrap();
    fs::hard_link(copy.join("folder-0/own"), copy.join("folder-2/deeper/3")).unwrap();
    fs::remove_file(copy.join("link")).unwrap();
    std::os::unix::fs::symlink("elsewhere", copy.join("link")).unwrap();
    cp("copy", "wanted");
    // cp would write into the existing file, which changes its content under both names. thalweg replaces only one
    // name. To obtain the same result with cp, this removes that name first.
    fs::remove_file(scratch.join("wanted/folder-2/deeper/3")).unwrap();
    cp("tree", "wanted");
    scratch
}

#[track_caller]
fn expect_merged(scratch: &Scratch) {
    expect_same(&scratch.join("wanted"), &scratch.join("copy"));
    assert_eq!(names(scratch.path()), ["copy", "tree", "wanted"]);
}

#[test]
fn what_is_there_is_replaced_file_by_file_and_what_is_not_of_the_tree_stays() {
    let scratch = plant_both();
    let said = fleet(scratch.path(), 2, &["-T"]);
    let finished = said.iter().filter(|said| of_fleet(said, "end") == "finished").count();
    assert_eq!(finished, 1, "{said:?}");
    expect_merged(&scratch);
    // A rank that starts late waits for rank 0, and finds that the copy is complete.
    let late = run(&mut rank(scratch.path(), 1, 2, &["-T", "--wait=0s"])).expect(0).json();
    assert_eq!(of_fleet(&late, "end"), "there");
    expect_merged(&scratch);
}

#[test]
fn until_the_end_nothing_in_it_changes_and_after_a_kill_at_any_moment_the_same_command_completes_it()
 {
    let test = "until_the_end_nothing_in_it_changes";
    let mut dice = Dice::new(test);
    let kills = from_env("THALWEG_KILLS", 4);
    let mut landed = 0;
    for missed in 0.. {
        assert!(missed < 10 * kills + 20, "kills do not land: {landed} did");
        if landed >= kills {
            break;
        }
        let scratch = plant_both();
        let own = scratch.join("copy/own/below/file");
        let (before, size) = (fs::read(&own).unwrap(), dice.within(1..3));
        // Half of the kills come while the finisher, the rank that completes the copy, links the files into the tree.
        let at_the_end = dice.within(0..2) == 0;
        let mut all = if at_the_end {
            (0..size).map(|n| Running::start(&mut rank(scratch.path(), n, size, &["-T"]))).collect()
        } else {
            start_slowly(scratch.path(), size, &["-T"])
        };
        let stage = scratch.join(".copy.thalweg-fleet");
        if at_the_end {
            while !stage.join("finisher").exists() && !all.iter_mut().all(Running::has_ended) {
                thread::sleep(Duration::from_micros(100));
            }
            thread::sleep(Duration::from_micros(dice.within(0..40_000)));
        } else {
            thread::sleep(Duration::from_millis(dice.within(0..400)));
        }
        for one in &mut all {
            if !one.has_ended() {
                one.signal(Signal::KILL);
                landed += 1;
            }
        }
        for one in all {
            drop(one.finish());
        }
        assert_eq!(fs::read(&own).unwrap(), before);
        if has_plan(scratch.path()) && !stage.join("finisher").exists() {
            assert_eq!(fs::read(scratch.join("copy/folder-0/deeper/7")).unwrap(), b"old");
        }
        fleet(scratch.path(), dice.within(1..3), &["-T"]);
        expect_merged(&scratch);
    }
}

#[test]
fn what_cannot_be_replaced_is_named_and_all_is_kept_until_it_can() {
    let scratch = plant_both();
    let stuck = scratch.join("copy/folder-0/deeper/9");
    fs::remove_file(&stuck).unwrap();
    fs::create_dir(&stuck).unwrap();
    let ran = run(&mut rank(scratch.path(), 0, 1, &["-T"])).expect(3);
    ran.expect_said("folder-0/deeper/9");
    assert_eq!(of_fleet(&ran.json(), "end"), "unfinished");
    assert!(has_plan(scratch.path()));
    fs::remove_dir(&stuck).unwrap();
    let said = fleet(scratch.path(), 1, &["-T"]).remove(0);
    assert_eq!((of_fleet(&said, "done"), &said["bytes"]), (0.into(), &0.into()));
    expect_merged(&scratch);
}

#[test]
fn what_is_no_folder_or_holds_the_source_is_refused_before_anything_is_made() {
    let scratch = Scratch::new();
    plant(scratch.path());
    fs::write(scratch.join("file"), "").unwrap();
    let refused = |words: &[&str], said: &str| {
        let mut command = thalweg();
        command.args(["copy", "-a", "-T", "--shard=0/1"]).args(words);
        run(command.current_dir(scratch.path())).expect(2).expect_said(said);
    };
    refused(&["tree", "new"], "not an existing directory");
    refused(&["tree", "file"], "not an existing directory");
    refused(&["tree", "tree"], "is inside");
    refused(&["tree/folder-0", "tree"], "is inside");
    assert_eq!(names(scratch.path()), ["file", "tree"]);
}

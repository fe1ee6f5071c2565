//! A resume may find another source than the killed copy had, or a trap in place of the partial file. The tests `resume`
//! of `thalweg-tree` damage the partial file and its journal.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command, thread, time::Duration};

use crate::support::{Running, Scratch, bytes, names, run, thalweg};

const LEN: u64 = 16 << 20;

fn resume(source: &Path, copy: &Path) -> Command {
    let mut command = thalweg();
    command.args(["copy", "--resume"]).args([source, copy]);
    command
}

#[test]
fn a_part_of_one_source_is_not_mixed_with_another() {
    let scratch = Scratch::new();
    let [source, copy, part, journal] =
        ["source", "copy", ".copy.thalweg-part", ".copy.thalweg-journal"]
            .map(|name| scratch.join(name));
    bytes::write(&source, 1, LEN);
    // With this limit, the copy is still far from its end at the kill.
    let mut running = Running::start(resume(&source, &copy).arg("--limit=512K"));
    while fs::metadata(&journal).map_or(0, |found| found.len()) == 0 {
        assert!(!running.has_ended(), "over before there was a journal");
        thread::sleep(Duration::from_millis(2));
    }
    running.child().kill().unwrap();
    drop(running.finish());
    assert!(bytes::prefix(&part, 1) > 0 && !copy.exists());
    fs::remove_file(&source).unwrap();
    bytes::write(&source, 3, LEN + 1);
    let account = run(resume(&source, &copy).arg("--json")).expect(0).json();
    assert_eq!(account["bytes"], LEN + 1);
    bytes::expect(&copy, 3, LEN + 1);
    assert_eq!(names(scratch.path()), ["copy", "source"]);
}

#[test]
fn a_trap_in_place_of_the_part_is_not_walked_into() {
    let scratch = Scratch::new();
    let [source, victim, copy] = ["source", "victim", "copy"].map(|name| scratch.join(name));
    bytes::write(&source, 1, LEN);
    bytes::write(&victim, 2, 5000);
    let part = scratch.join(".copy.thalweg-part");
    let set: [fn(&Path, &Path); 3] = [
        |victim, part| symlink(victim, part).unwrap(),
        |_, part| fs::create_dir(part).unwrap(),
        |victim, part| fs::hard_link(victim, part).unwrap(),
    ];
    for set in set {
        set(&victim, &part);
        run(&mut resume(&source, &copy)).expect(0);
        bytes::expect(&copy, 1, LEN);
        bytes::expect(&victim, 2, 5000);
        drop(fs::remove_file(&copy));
        drop(fs::remove_file(&part).or_else(|_| fs::remove_dir(&part)));
    }
}

//! A resume may find other files than the killed copy left: changed sources, damaged journals, traps.

use std::{
    fs::{self, File},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use crate::support::{Running, Scratch, bytes, names, run, thalweg};

const LEN: u64 = 16 << 20;
/// With this limit, a copy is still far from its end at the kill.
const LIMIT: &str = "--limit=512K";
/// More bytes than the tests damage or truncate in the partial file.
const DONE: u64 = 100_000;

/// A directory with a source and the partial file of a killed copy.
struct Killed {
    scratch: Scratch,
    source: PathBuf,
    copy: PathBuf,
    part: PathBuf,
    journal: PathBuf,
}

impl Killed {
    fn midway() -> Self {
        let scratch = Scratch::new();
        let [source, copy, part, journal] =
            ["source", "copy", ".copy.thalweg-part", ".copy.thalweg-journal"]
                .map(|name| scratch.join(name));
        bytes::write(&source, 1, LEN);
        let mut running = Running::start(resume(&source, &copy).arg(LIMIT));
        // The copy writes its journal only at intervals, so this waits for it.
        while done(&journal) < DONE {
            assert!(!running.has_ended(), "over before there was a journal");
            thread::sleep(Duration::from_millis(2));
        }
        running.child().kill().unwrap();
        drop(running.finish());
        assert!(bytes::prefix(&part, 1) > 0 && !copy.exists());
        Self { scratch, source, copy, part, journal }
    }

    /// Resumes the copy. Checks that it equals the current source, and that no other file is left. Returns the bytes
    /// moved.
    #[track_caller]
    fn finishes(&self) -> u64 {
        let account = run(resume(&self.source, &self.copy).arg("--json")).expect(0).json();
        run(Command::new("cmp").args([&self.source, &self.copy])).expect(0);
        assert_eq!(names(self.scratch.path()), ["copy", "source"]);
        account["bytes"].as_u64().expect("bytes")
    }
}

/// Returns the number of completed bytes in a journal; 0 if the journal is absent or incomplete.
fn done(journal: &Path) -> u64 {
    let journal = fs::read_to_string(journal).ok().and_then(|text| json(&text));
    journal.and_then(|journal| journal["done"][0][1].as_u64()).unwrap_or(0)
}

fn json(text: &str) -> Option<serde_json::Value> {
    serde_json::from_str(text).ok()
}

fn resume(source: &Path, copy: &Path) -> Command {
    let mut command = thalweg();
    command.args(["copy", "--resume"]).args([source, copy]);
    command
}

#[test]
fn a_source_rewritten_since_the_kill_is_copied_again() {
    let killed = Killed::midway();
    bytes::write_at(&killed.source, 2, 0, 4096);
    assert_eq!(killed.finishes(), LEN);
}

#[test]
fn a_part_of_one_source_is_not_mixed_with_another() {
    let killed = Killed::midway();
    fs::remove_file(&killed.source).unwrap();
    bytes::write(&killed.source, 3, LEN + 1);
    assert_eq!(killed.finishes(), LEN + 1);
}

#[test]
fn a_spoilt_journal_is_not_believed() {
    let all_of_it = format!("{{\"schema\":1,\"done\":{LEN}}}");
    for text in ["", "{", "\0\0\0\0", "null", &all_of_it, &"x".repeat(100_000)] {
        let killed = Killed::midway();
        fs::write(&killed.journal, text).unwrap();
        killed.finishes();
    }
}

#[test]
fn a_part_is_compared_where_the_journal_may_have_outlived_it() {
    // Simulates a power cut: the journal has another boot id, and some bytes of the partial file are wrong.
    let killed = Killed::midway();
    let text = fs::read_to_string(&killed.journal).unwrap();
    let mut journal = json(&text).unwrap();
    journal["boot_id"] = "00000000-0000-0000-0000-000000000000".into();
    fs::write(&killed.journal, journal.to_string()).unwrap();
    bytes::write_at(&killed.part, 4, 70_000, 4096);
    assert_eq!(killed.finishes(), LEN - 70_000);
}

#[test]
fn a_part_shorter_than_its_journal_says_is_not_filled_with_zeros() {
    let killed = Killed::midway();
    File::options().write(true).open(&killed.part).unwrap().set_len(50_000).unwrap();
    assert_eq!(killed.finishes(), LEN - 50_000);
}

#[test]
fn a_partial_file_is_replaced_without_resume() {
    let killed = Killed::midway();
    run(thalweg().arg("copy").args([&killed.source, &killed.copy])).expect(0);
    bytes::expect(&killed.copy, 1, LEN);
    // With O_TMPFILE, the copy needs no partial file, so it may not find and remove the old one.
    run(thalweg().args(["copy", "--resume", "-f"]).args([&killed.source, &killed.copy])).expect(0);
    bytes::expect(&killed.copy, 1, LEN);
    assert_eq!(names(killed.scratch.path()), ["copy", "source"]);
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

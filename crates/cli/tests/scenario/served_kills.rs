//! Kills and restarts the server while `thalweg fetch` reads. No partial file has the final name, and no bytes are sent
//! twice.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use thalweg_testing::from_env;

use crate::{
    fetch_trees::{are_equal, fetch, shared},
    fetches::is_written,
    support::{Running, Scratch, Served, bytes, names, run, thalweg},
};

const LEN: u64 = 20_000_000;

fn fetch_one(served: &Served, to: &Path, words: &[&str]) -> Command {
    let mut command = thalweg();
    command.args(["fetch", "--json", &served.at("file")]).arg(to).args(words);
    command
}

/// Waits until the journal records bytes to resume from, or until the fetch ends.
fn wait_for_some(running: &mut Running, place: &Path) {
    while !is_written(&place.join(".f.thalweg-journal")) && !running.has_ended() {
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn after_a_kill_of_the_server_the_same_command_moves_only_what_is_missing() {
    let scratch = Scratch::new();
    let (root, place) = (scratch.folder("shared"), scratch.folder("place"));
    bytes::write(&root.join("file"), 1, LEN);
    let (mut served, path) = (Served::on(&root), place.join("f"));
    let mut resumed = 0;
    for round in 0..from_env("THALWEG_KILLS", 5) {
        let connections = if round % 2 == 0 { "auto" } else { "3" };
        let words = ["--limit", "10M", "--retries", "0", "--connections", connections];
        let mut running = Running::start(&mut fetch_one(&served, &path, &words));
        wait_for_some(&mut running, &place);
        thread::sleep(Duration::from_millis(31 * round % 250));
        served.kill();
        let first = running.finish();
        served.start_again();
        if path.exists() {
            first.expect(0);
        } else {
            first.expect(3).expect_said("run the same command again to continue");
            assert_eq!(names(&place), [".f.thalweg-journal", ".f.thalweg-part"], "round {round}");
            let second = run(&mut fetch_one(&served, &path, &[])).expect(0);
            assert!(second.json()["bytes"].as_u64().unwrap() < LEN, "round {round}");
            resumed += 1;
        }
        bytes::expect(&path, 1, LEN);
        assert_eq!(names(&place), ["f"], "round {round}");
        fs::remove_file(&path).unwrap();
    }
    assert!(resumed > 0, "no kill came while it moved");
}

#[test]
fn a_server_that_is_back_soon_is_gone_on_with_by_the_same_run() {
    let scratch = Scratch::new();
    let (root, place) = (scratch.folder("shared"), scratch.folder("place"));
    bytes::write(&root.join("file"), 2, LEN);
    let (mut served, path) = (Served::on(&root), place.join("f"));
    // These retries suffice until the server listens again.
    let words = ["--limit", "10M", "--retries", "20"];
    let mut running = Running::start(&mut fetch_one(&served, &path, &words));
    wait_for_some(&mut running, &place);
    served.kill();
    served.start_again();
    let json = running.finish().expect(0).json();
    assert_eq!(json["bytes"], LEN);
    bytes::expect(&path, 2, LEN);
    assert_eq!(names(&place), ["f"]);
}

#[test]
fn after_a_kill_of_the_server_the_same_command_brings_the_rest_of_a_tree() {
    let scratch = Scratch::new();
    let root = shared(&scratch);
    let mut served = Served::on(&root);
    let place = scratch.folder("place");
    let (dst, stage) = (place.join("dst"), place.join(".dst.thalweg-part"));
    let all = LEN + 100 * (0..200).sum::<u64>();
    let mut resumed = 0;
    for round in 0..from_env("THALWEG_KILLS", 5) {
        let words = ["--limit", "20M", "--retries", "0"];
        let mut running = Running::start(&mut fetch(&served, &dst, &words));
        while !stage.join("4").exists() && !running.has_ended() {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(20 + 97 * round % 450));
        served.kill();
        let first = running.finish();
        if dst.exists() {
            first.expect(0);
        } else {
            let first = first.expect(3);
            first.expect_said(".dst.thalweg-part");
            first.expect_said("run the same command again to continue");
            assert_eq!(names(&place), [".dst.thalweg-part"], "round {round}");
        }
        served.start_again();
        let second = run(&mut fetch(&served, &dst, &[])).expect(0);
        are_equal(&root, &dst);
        assert_eq!(names(&place), ["dst"], "round {round}");
        let mut find = Command::new("find");
        find.arg(&dst).args(["-name", ".*thalweg*"]).stdin(Stdio::null());
        assert!(run(&mut find).expect(0).stdout.is_empty(), "round {round}");
        resumed += u64::from(second.json()["bytes"].as_u64().unwrap() < all);
        fs::remove_dir_all(&dst).unwrap();
    }
    assert!(resumed > 0, "no kill came while it moved");
}

#[test]
fn a_new_directory_stays_hidden_if_the_server_dies_during_its_last_file() {
    let scratch = Scratch::new();
    let (root, place) = (scratch.folder("shared"), scratch.folder("place"));
    fs::write(root.join("small"), "text").unwrap();
    bytes::write(&root.join("large"), 3, LEN);
    let mut served = Served::on(&root);
    let (dst, stage) = (place.join("dst"), place.join(".dst.thalweg-part"));
    let mut running =
        Running::start(&mut fetch(&served, &dst, &["--limit", "10M", "--retries", "0"]));
    let is_begun =
        || stage.join("small").exists() && is_written(&stage.join(".large.thalweg-journal"));
    while !is_begun() && !running.has_ended() {
        thread::sleep(Duration::from_millis(1));
    }
    served.kill();
    let first = running.finish().expect(3);
    first.expect_said("run the same command again to continue");
    assert_eq!(names(&place), [".dst.thalweg-part"]);
    served.start_again();
    run(&mut fetch(&served, &dst, &[])).expect(0);
    are_equal(&root, &dst);
}

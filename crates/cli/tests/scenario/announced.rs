//! `thalweg receive` compares the received files with those that the sender announced. If a file is missing or too
//! short, both commands fail.

use rustix::fs::{CWD, Mode, mkfifoat};
use std::{
    fs::{self, File},
    io::{Read, Write},
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use super::handovers::{LEN, Place, both};
use crate::support::{
    Running, bytes,
    fuse::source::{Illness, NAME, SickSource},
    names,
    run::GUARD,
};

#[test]
fn files_that_could_not_be_opened_are_missed_by_the_receiver_too() {
    let place = Place::new(LEN).with_folder();
    let files = [place.scratch.join("missing"), place.source.clone(), place.scratch.join("gone")];
    let (received, sent) = both(&mut place.receive(&["--json"]), &mut place.send_many(&[], &files));
    sent.expect(1).expect_said("2 of 3 files failed");
    let received = received.expect(1);
    received.expect_said("received 1 of 3 announced files");
    let account = received.json();
    assert_eq!((&account["files"], &account["bytes"]), (&1.into(), &LEN.into()));
    assert!(account["error"].is_string());
    assert_eq!(names(&place.copy), ["source"]);
    bytes::expect(&place.copy.join("source"), 1, LEN);
}

#[test]
fn a_sender_killed_between_two_files_leaves_the_first_and_a_receiver_that_counts() {
    let place = Place::new(LEN).with_folder();
    let pipe = place.scratch.join("pipe");
    mkfifoat(CWD, &pipe, Mode::from_raw_mode(0o600)).unwrap();
    let receiving = Running::start(&mut place.receive(&["--json"]));
    let mut sending =
        Running::start(&mut place.send_many(&[], &[place.source.clone(), pipe.clone()]));
    // This open(2) returns when the sender opens the FIFO, its second file. The FIFO has no end while the test holds it
    // open.
    let mut writer = File::options().write(true).open(&pipe).unwrap();
    writer.write_all(b"some of it").unwrap();
    let began = Instant::now();
    while names(&place.copy) != ["source"] {
        assert!(began.elapsed() < GUARD, "the first file is not there");
        thread::sleep(Duration::from_millis(1));
    }
    sending.child().kill().unwrap();
    let received = receiving.finish().expect(1);
    received.expect_said("the other process ended");
    received.expect_said("1 of 2 announced files");
    assert_eq!(received.json()["files"], 1);
    assert_eq!(names(&place.copy), ["source"]);
    bytes::expect(&place.copy.join("source"), 1, LEN);
    drop(sending.finish());
}

#[test]
fn a_source_that_shrinks_under_way_is_a_failure_of_both_and_not_published() {
    let place = Place::new(LEN);
    let mut receive = crate::support::thalweg();
    receive.arg("receive").arg("--from").arg(&place.socket).arg("-");
    let mut receiving = receive.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let sending = Running::start(&mut place.send(&["--buffer=64K"]));
    // The test reads only one byte for now, so the sender blocks far from the end of the file.
    let mut out = receiving.stdout.take().unwrap();
    out.read_exact(&mut [0]).unwrap();
    File::options().write(true).open(&place.source).unwrap().set_len(LEN / 2).unwrap();
    let mut rest = Vec::new();
    out.read_to_end(&mut rest).unwrap();
    let received = receiving.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&received.stderr);
    assert_eq!(received.status.code(), Some(1), "{said}");
    assert!(said.contains("the sender gave up: the file changed during the copy"), "{said}");
    assert_eq!(rest.len() as u64 + 1, LEN / 2);
    sending.finish().expect(1).expect_said("the file changed during the copy");
}

#[test]
fn a_source_that_fails_under_way_is_a_failure_of_both_and_the_others_are_there() {
    let test = "a_source_that_fails_under_way_is_a_failure_of_both";
    let broken = Illness::BrokenAt((2 << 20) + 4096);
    let Some(sick) = SickSource::mount(test, broken, 7, 3 << 20) else { return };
    let place = Place::new(LEN).with_folder();
    let good = place.more(&["good"]).remove(0);
    // The process that reads the source reports the error: the sender, or the receiver of the open descriptor.
    for (way, who) in
        [("--as-bytes", "the sender gave up"), ("--wait=30s", "rejected by the receiver: cannot")]
    {
        let (received, sent) = both(
            &mut place.receive(&["--force"]),
            &mut place.send_many(&[way], &[sick.source(), good.clone()]),
        );
        for ran in [received.expect(1), sent.expect(1)] {
            ran.expect_said(&format!("'{NAME}': {who}"));
            ran.expect_said("EIO");
            ran.expect_said("1 of 2 files failed");
        }
        assert_eq!(names(&place.copy), ["good"]);
        bytes::expect(&place.copy.join("good"), 2, LEN);
    }
    // If the only file fails, an existing destination keeps its old content.
    let place = Place::new(LEN);
    fs::write(&place.copy, "old").unwrap();
    let (received, sent) =
        both(&mut place.receive(&[]), &mut place.send_many(&[], &[sick.source()]));
    received.expect(1).expect_said("EIO");
    sent.expect(1).expect_said("EIO");
    assert_eq!(fs::read(&place.copy).unwrap(), b"old");
    place.expect_only(&["copy"]);
}

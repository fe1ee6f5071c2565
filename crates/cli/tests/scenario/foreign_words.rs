//! File names and messages of a peer that contain control characters, or lines that look like those of thalweg. All
//! output shows them escaped.

use std::{
    ffi::OsStr,
    fs, io,
    io::Read,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};
use thalweg_channel::bulk::{Item, Options, Pace, Sender};

use crate::handovers::{Place, both};
use crate::support::{
    Running, Scratch, names,
    run::{Ran, run},
    thalweg,
};

/// A name that would clear the screen, change the title and print a line. It is not valid UTF-8.
const NAME: &[u8] = b"a\x1b[2J\x1b]0;t\x07\nthalweg: sent\r\xff\xc2\x9b31m";
const WRITTEN: &str = "a\\u{1b}[2J\\u{1b}]0;t\\u{7}\\nthalweg: sent\\r\\xff\\u{9b}31m";

/// Checks that the output has no control characters except newlines, and no forged line.
#[track_caller]
fn expect_harmless(ran: &Ran) {
    for said in [ran.stderr.as_str(), &String::from_utf8_lossy(&ran.stdout)] {
        assert!(!said.chars().any(|c| c.is_control() && c != '\n'), "{said:?}");
        assert!(!said.contains("\nthalweg: sent"), "{said:?}");
    }
}

fn hostile_file(folder: &Path) -> PathBuf {
    let path = folder.join(OsStr::from_bytes(NAME));
    fs::write(&path, "x").unwrap();
    path
}

#[test]
fn the_name_of_a_file_is_written_out_by_both_sides_of_a_handover() {
    let place = Place::new(10).with_folder();
    let file = hostile_file(place.scratch.path());
    hostile_file(&place.copy);
    let send = &mut place.send_many(&["--json"], &[file.clone(), place.source.clone()]);
    let (received, sent) = both(&mut place.receive(&["--json"]), send);
    for ran in [received, sent] {
        let ran = ran.expect(1);
        ran.expect_said(WRITTEN);
        let json = ran.json();
        assert!(json["error"].as_str().unwrap().contains("already exists"), "{json}");
        expect_harmless(&ran);
    }
    fs::remove_file(&file).unwrap();
    let ran = run(&mut place.send_many(&[], &[file])).expect(1);
    ran.expect_said(&format!("{WRITTEN}': no such file or directory (open: ENOENT)"));
    expect_harmless(&ran);
}

/// A file with a read error that has control characters in its message.
struct Liar;

impl Read for Liar {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("\x1b]0;t\x07\nthalweg: sent"))
    }
}

#[test]
fn what_the_sender_says_is_written_out() {
    let place = Place::new(10).with_folder();
    let receiving = Running::start(&mut place.receive(&["-v"]));
    let mut sender = Sender::over(place.connect(), Options::default()).unwrap();
    let item = Item { name: Some("f".into()), size: None, source: Liar, file: None };
    let handed =
        sender.send_all([item], &mut Pace { buffer: 4096, total: Some(1), watch: &mut |_| {} });
    let told = handed.unwrap().problems[0].1.to_string();
    assert!(!told.chars().any(char::is_control), "{told:?}");
    sender.finish();
    let ran = receiving.finish().expect(1);
    ran.expect_said("the sender gave up: \\u{1b}]0;t\\u{7}\\nthalweg: sent");
    expect_harmless(&ran);
}

#[test]
fn a_copy_writes_the_names_of_a_tree_out() {
    let scratch = Scratch::new();
    let (from, to) = (scratch.join("from"), scratch.join("to"));
    fs::create_dir_all(&from).unwrap();
    let file = hostile_file(&from);
    let copy = |words: &[&str]| {
        let mut command = thalweg();
        command.arg("copy").args(words);
        command
    };
    let ran = run(copy(&["-rvT"]).args([&from, &to])).expect(0);
    expect_harmless(&ran);
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(said.contains(&format!("/{WRITTEN}' -> '")), "{said}");
    assert_eq!(names(&to).len(), 1);
    let ran = run(copy(&["-rvn"]).args([&file, &to])).expect(0);
    expect_harmless(&ran);
    let ran = run(copy(&["--json"]).args([&file, &file])).expect(1);
    ran.expect_said(WRITTEN);
    expect_harmless(&ran);
    let mut plan = thalweg();
    let ran = run(plan.arg("plan").args([&file, &to])).expect(0);
    expect_harmless(&ran);
}

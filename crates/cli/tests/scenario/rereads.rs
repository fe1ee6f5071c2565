//! `--verify` of an earlier copy in which one byte differs, although size and times are equal.

use serde_json::{Value, json};
use std::{
    fs,
    os::unix::{fs::symlink, process::CommandExt},
    process::Command,
};

use crate::support::{Running, Scratch, bytes, run, scratch::open_to_all, skip, thalweg};

const FILES: u64 = 30;

/// Makes a tree and its copy, in which one byte of a file differs. Returns the name of this file.
fn spoilt_copy() -> (Scratch, String) {
    let scratch = Scratch::new();
    let source = scratch.folder("source");
    for n in 0..FILES {
        fs::write(source.join(format!("f{n}")), format!("the contents of file {n}")).unwrap();
    }
    run(&mut copy(&scratch, &["-a"])).expect(0);
    bytes::spoil(&scratch.join("copy/f7"), 0);
    (scratch, "f7".to_owned())
}

fn copy(scratch: &Scratch, options: &[&str]) -> Command {
    let mut command = thalweg();
    command.arg("copy").args(options).arg("-T");
    command.args([scratch.join("source"), scratch.join("copy")]);
    command
}

fn counts(account: &Value) -> Value {
    let verified = &account["verified"];
    json!([verified["asked"], verified["same"], verified["differ"], verified["again"]])
}

#[test]
fn resume_and_verify_find_a_byte_that_size_and_times_do_not_show_and_end_with_a_true_copy() {
    let (scratch, name) = spoilt_copy();
    let unasked = run(&mut copy(&scratch, &["-a", "--resume", "--json"])).expect(0).json();
    assert_eq!(counts(&unasked), json!([false, 0, 0, 0]));
    let ran = run(&mut copy(&scratch, &["-a", "--resume", "--verify", "--json"])).expect(0);
    assert_eq!(counts(&ran.json()), json!([true, FILES, 0, 1]), "{}", ran.stderr);
    assert!(ran.stderr.contains(&format!("copy/{name}'")), "{}", ran.stderr);
    run(Command::new("diff").arg("-r").args([scratch.join("source"), scratch.join("copy")]))
        .expect(0);
}

#[test]
fn a_file_that_update_or_no_clobber_leaves_is_read_and_named_if_it_differs() {
    for option in ["-u", "-n"] {
        let (scratch, name) = spoilt_copy();
        let ran = run(&mut copy(&scratch, &["-a", option, "--verify", "--json"])).expect(1);
        assert_eq!(counts(&ran.json()), json!([true, FILES - 1, 1, 0]), "{option}: {}", ran.stderr);
        assert!(ran.stderr.contains(&format!("copy/{name}'")), "{option}: {}", ran.stderr);
        let left = fs::read(scratch.join("copy/f7")).unwrap();
        assert_eq!(left[0], b'X', "{option} replaces nothing");
    }
}

#[test]
fn a_link_that_stays_is_compared_by_what_it_says() {
    let scratch = Scratch::new();
    symlink("one", scratch.folder("source").join("link")).unwrap();
    symlink("other", scratch.folder("copy").join("link")).unwrap();
    let ran = run(&mut copy(&scratch, &["-a", "-n", "--verify"])).expect(1);
    assert!(ran.stderr.contains("copy/link'"), "{}", ran.stderr);
}

#[test]
fn a_dry_run_says_that_it_has_read_nothing() {
    let (scratch, _) = spoilt_copy();
    let account = run(&mut copy(&scratch, &["-a", "-n", "--verify", "--dry-run", "--json"]));
    let account = account.expect(0).json();
    assert_eq!(account["verified"]["not_read"], FILES);
    assert_eq!(counts(&account), json!([true, 0, 0, 0]));
}

#[test]
fn a_part_that_was_spoilt_below_what_its_journal_says_is_copied_from_its_start() {
    let scratch = Scratch::new();
    let (source, part) = (scratch.join("source"), scratch.join(".copy.thalweg-part"));
    bytes::write(&source, 1, 16 << 20);
    let mut running = Running::start(&mut copy(&scratch, &["--resume", "--limit=512K"]));
    while fs::metadata(scratch.join(".copy.thalweg-journal")).map_or(0, |m| m.len()) == 0
        || bytes::prefix(&part, 1) < 100_000
    {
        assert!(!running.has_ended(), "over before there was a journal");
        std::thread::yield_now();
    }
    running.child().kill().unwrap();
    drop(running.finish());
    bytes::spoil(&part, 0);
    let ran = run(&mut copy(&scratch, &["--resume", "--verify", "--json"])).expect(0);
    assert_eq!(counts(&ran.json())[1], 1);
    bytes::expect(&scratch.join("copy"), 1, 16 << 20);
}

#[test]
fn a_copy_that_may_not_be_read_is_an_error_and_no_pass() {
    if !rustix::process::geteuid().is_root() {
        return skip("a_copy_that_may_not_be_read_is_an_error_and_no_pass", "needs root");
    }
    let scratch = Scratch::public();
    for folder in ["source", "copy"] {
        fs::write(scratch.folder(folder).join("f"), "same").unwrap();
        open_to_all(&scratch.join(folder));
    }
    run(Command::new("chmod").arg("000").arg(scratch.join("copy/f"))).expect(0);
    let mut command = Command::new(scratch.binary());
    command.args(["copy", "-r", "-n", "--verify", "-T"]).uid(65534).gid(65534);
    let ran = run(command.args([scratch.join("source"), scratch.join("copy")]));
    assert_ne!(ran.code(), 0);
    assert!(ran.stderr.contains("copy/f'") && ran.stderr.contains("EACCES"), "{}", ran.stderr);
}

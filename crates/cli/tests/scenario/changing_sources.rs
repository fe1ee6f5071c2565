//! Sources that change during the copy. The copy reports the change and exits with 3. It never hangs, crashes or
//! receives SIGBUS.

use std::{
    fs::{self, File},
    path::Path,
    process::Command,
    thread,
    time::Duration,
};

use crate::support::{
    Running, Scratch, bytes, file_methods, names, run, run::Ran, scratch::unfinished, thalweg,
};

const LEN: u64 = 16 << 20;
/// Rate limits with which the copy takes 0.3, 3 and 30 seconds. If the change came too late, the test tries the next
/// limit.
const LIMITS: [&str; 3] = ["--limit=48M", "--limit=5M", "--limit=512K"];

/// A change of a file that is being read.
type Change = fn(&Path);

const CHANGES: [(&str, Change); 5] = [
    ("truncated", |path| File::options().write(true).open(path).unwrap().set_len(4097).unwrap()),
    ("emptied", |path| File::create(path).map(drop).unwrap()),
    ("grown", |path| bytes::write_at(path, 21, LEN, 1 << 20)),
    ("rewritten", |path| bytes::write_at(path, 22, 0, 1 << 20)),
    ("replaced", |path| {
        let other = path.with_file_name("other");
        bytes::write(&other, 23, 1 << 20);
        fs::rename(other, path).unwrap();
    }),
];

/// Starts a slow copy of the source or of its directory, and changes the source during the copy. Returns `None` if the
/// copy ended before the change.
fn copy_while(source: &Path, copy: &mut Command, change: Change) -> Option<Ran> {
    let mut running = Running::start(copy);
    if !running.wait_until_open(|path| path == source) {
        return Some(running.finish());
    }
    thread::sleep(Duration::from_millis(60));
    change(source);
    let over = running.has_ended();
    let ran = running.finish();
    (!over).then_some(ran)
}

/// Makes one change during one kind of copy. Returns `false` if the mechanism does not support the endpoints.
#[track_caller]
fn expect_said(what: &str, change: Change, options: &[&str]) -> bool {
    let scratch = Scratch::new();
    let (source, copy) = (scratch.join("source"), scratch.join("copy"));
    for limit in LIMITS {
        bytes::write(&source, 20, LEN);
        let mut command = thalweg();
        command.arg("copy").arg(limit).args(options).args([&source, &copy]);
        let Some(ran) = copy_while(&source, &mut command, change) else { continue };
        let ran = ran.expect_no_panic();
        if ran.code() == 4 {
            // The mechanism does not support these endpoints.
            return false;
        }
        if ran.code() == 0 && bytes::is(&copy, 20, LEN) {
            // On a busy disk, the change may be delayed until the copy has made its last check. The test then tries a
            // slower copy.
            continue;
        }
        assert_eq!(ran.code(), 3, "{what} {options:?}: {}", ran.said());
        let short = what == "truncated" || what == "emptied";
        let says_so = ran.stderr.contains("changed") || (short && ran.stderr.contains("short"));
        assert!(says_so, "{what} {options:?}: {}", ran.stderr);
        assert_eq!(unfinished(scratch.path()), Vec::<std::path::PathBuf>::new());
        return true;
    }
    panic!("{what} {options:?}: no change landed inside a copy");
}

fn expect_said_by_all(index: usize) {
    let (what, change) = CHANGES[index];
    let methods = file_methods();
    let ways = methods.iter().map(|name| vec!["--method", name]);
    let caught = ways.filter(|way| expect_said(what, change, way)).count();
    assert!(caught >= 3, "only {caught} mechanisms were there to see a source {what}");
    expect_said(what, change, &[]);
}

#[test]
fn a_source_truncated_under_the_copy_is_reported() {
    expect_said_by_all(0);
}

#[test]
fn a_source_emptied_under_the_copy_is_reported() {
    expect_said_by_all(1);
}

#[test]
fn a_source_that_grows_under_the_copy_is_reported() {
    expect_said_by_all(2);
}

#[test]
fn a_source_rewritten_under_the_copy_is_reported() {
    expect_said_by_all(3);
}

#[test]
fn a_source_replaced_under_the_copy_is_reported() {
    expect_said_by_all(4);
}

#[test]
fn a_change_is_reported_for_a_file_in_a_tree_and_with_verification() {
    for (what, change) in CHANGES {
        expect_said(what, change, &["--verify"]);
        expect_said_in_a_tree(what, change);
    }
}

/// Changes a file while its directory is copied.
#[track_caller]
fn expect_said_in_a_tree(what: &str, change: Change) {
    for limit in LIMITS {
        let scratch = Scratch::new();
        let tree = scratch.folder("tree");
        bytes::write(&tree.join("other-file"), 24, 100_000);
        let (source, copy) = (tree.join("source"), scratch.join("copy"));
        bytes::write(&source, 20, LEN);
        let mut command = thalweg();
        command.args(["copy", "-a", "--jobs=2", limit]).args([&tree, &copy]);
        let Some(ran) = copy_while(&source, &mut command, change) else { continue };
        let ran = ran.expect_no_panic();
        if ran.code() == 0 && bytes::is(&copy.join("source"), 20, LEN) {
            continue;
        }
        assert_eq!(ran.code(), 3, "{what}: {}", ran.said());
        assert!(ran.stderr.contains("changed") || ran.stderr.contains("short"), "{}", ran.stderr);
        bytes::expect(&copy.join("other-file"), 24, 100_000);
        assert_eq!(unfinished(scratch.path()), Vec::<std::path::PathBuf>::new());
        assert_eq!(names(scratch.path()), ["copy", "tree"]);
        return;
    }
    panic!("{what}: no change landed inside a copy of a tree");
}

/// The copy of a source that changed has bytes of both versions, so a later run must not take it for complete.
#[test]
fn a_copy_whose_source_changed_is_made_again_by_the_next_run() {
    const REWRITTEN: Change = |path| bytes::write_at(path, 22, 0, LEN as usize);
    const WITH_ITS_TIME: Change = |path| {
        let before = fs::metadata(path).unwrap().modified().unwrap();
        REWRITTEN(path);
        File::options().write(true).open(path).unwrap().set_modified(before).unwrap();
    };
    for (options, change) in
        [(&["copy"][..], REWRITTEN), (&["copy", "-p"], REWRITTEN), (&["copy", "-p"], WITH_ITS_TIME)]
    {
        let is_caught = LIMITS.iter().any(|limit| {
            let scratch = Scratch::new();
            let (source, copy) = (scratch.join("source"), scratch.join("copy"));
            bytes::write(&source, 20, LEN);
            let mut command = thalweg();
            command.args(options).arg(limit).args([&source, &copy]);
            let Some(ran) = copy_while(&source, &mut command, change) else { return false };
            if ran.code() == 0 {
                return false;
            }
            ran.expect(3);
            run(thalweg().args(options).arg("--resume").args([&source, &copy])).expect(0);
            bytes::expect(&copy, 22, LEN);
            true
        });
        assert!(is_caught, "{options:?}: no change landed inside a copy");
    }
}

//! Tests that the examples of this crate are the programs in docs/reference/rust.md, and do what the page
//! describes.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs an example in an empty directory, without a profile. Returns its output.
fn run(name: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(thalweg_testing::example(name))
        .current_dir(&folder)
        .env("THALWEG_PROFILE", folder.path().join("none"))
        .env("XDG_RUNTIME_DIR", folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_programs_of_the_guide_are_the_examples() {
    let guide = fs::read_to_string(root().join("../../docs/reference/rust.md")).unwrap();
    let blocks = guide.split("```rust\n").skip(1).map(|rest| rest.split_once("```\n").unwrap().0);
    let examples = ["copy", "messages", "receive", "send"];
    let read = |name| fs::read_to_string(root().join(format!("examples/{name}.rs"))).unwrap();
    assert_eq!(blocks.collect::<Vec<_>>(), examples.map(read), "left: the guide");
}

#[test]
fn the_guides_copies_report_the_moved_bytes() {
    let told = run("copy");
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines[0].starts_with("10 bytes by "), "{told}");
    assert_eq!(lines[1], "1 files, 2 folders");
}

#[test]
fn the_guides_messages_arrive_in_order() {
    assert_eq!(run("messages"), "copied\nin place\n2 messages\n");
}

#[test]
fn two_processes_of_the_guide_talk_and_a_missing_one_is_reported_with_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("meeting");
    let failed = Command::new(thalweg_testing::example("send")).arg(&path).output().unwrap();
    let told = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(!failed.status.success() && told.contains(path.to_str().unwrap()), "{told}");
    let receiver = Command::new(thalweg_testing::example("receive"))
        .arg(&path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    while !Command::new(thalweg_testing::example("send"))
        .arg(&path)
        .output()
        .unwrap()
        .status
        .success()
    {}
    let told = receiver.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&told.stdout), "Rust received: hello from Rust\n");
}

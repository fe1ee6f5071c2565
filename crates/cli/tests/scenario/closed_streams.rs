//! thalweg treats a closed standard input as an error, not as an empty input. A closed standard output and lost results
//! are errors, too.

use std::fs;

use crate::{
    few_threads::STUDY,
    support::{Scratch, names, shell},
};
use thalweg_testing::Sample;

/// Commands that print results on standard output.
const PRINTING: &[&str] = &[
    "copy -v a b",
    "copy -rv tree t",
    "copy -rv --jobs 4 tree t",
    "copy --json a b",
    "copy --dry-run a b",
    "copy --dry-run -rv tree t",
    "copy -v --dry-run a b",
    "copy --dry-run a -",
    "verify tree tree",
    "verify --json tree tree",
    "verify --json tree many",
    "manifest tree",
    "manifest --json -o m tree",
    "list",
    "list --json",
    "doctor",
    "doctor --json",
    "plan a b",
    "plan --json a b",
    "study",
    "study --json",
    "study --check ./900-null.toml",
    "study --new s",
    "completions bash",
    "completions fish",
    "man",
    "man copy",
    "--help",
    "-h",
    "copy --help",
    "help copy",
    "--version",
    "-V",
];

#[test]
fn results_that_cannot_be_written_are_an_error() {
    let mut sample = Sample::new("results_that_cannot_be_written", 10);
    for output in [">/dev/full", ">&-"] {
        for command in sample.of(PRINTING) {
            let scratch = Scratch::new();
            fs::write(scratch.join("900-null.toml"), STUDY).unwrap();
            let line = format!(
                "echo x >a; mkdir tree many; echo y >tree/f; echo y >many/f; $T {command} {output}"
            );
            let ran = shell(scratch.path(), &line).expect(1);
            let why = if output == ">&-" { "standard output is closed" } else { "ENOSPC" };
            assert_eq!(ran.stderr.matches(why).count(), 1, "{command} {output}: {ran:?}");
        }
    }
}

#[test]
fn an_answer_beside_the_data_that_cannot_be_written_is_an_error() {
    let scratch = Scratch::new();
    fs::write(scratch.join("d"), "data").unwrap();
    for command in ["pipe --json <d", "copy --json d -", "manifest --json d"] {
        for errors in ["2>/dev/full", "2>&-"] {
            let ran = shell(scratch.path(), &format!("$T {command} {errors}")).expect(1);
            assert!(ran.stdout.starts_with(b"data") || command.starts_with("manifest"), "{ran:?}");
        }
    }
}

#[test]
fn the_work_is_done_although_its_results_are_lost_and_a_failure_is_still_reported() {
    let scratch = Scratch::new();
    fs::write(scratch.join("d"), "data").unwrap();
    shell(scratch.path(), "$T copy -v --manifest m d x >/dev/full").expect(1);
    assert_eq!(names(scratch.path()), ["d", "m", "x"]);
    let line = "$T copy --json --manifest n d gone y >/dev/full";
    fs::create_dir(scratch.join("y")).unwrap();
    let ran = shell(scratch.path(), line).expect(1);
    assert!(ran.stderr.contains("'gone'"), "{ran:?}");
    assert!(ran.stderr.contains("cannot write standard output"), "{ran:?}");
    assert_eq!(names(&scratch.join("y")), ["d"]);
}

#[test]
fn a_reader_that_leaves_changes_nothing_of_a_copy() {
    let scratch = Scratch::new();
    let line =
        "mkdir s; touch s/{1..500}; $T copy -rv s d | head -n 1 >/dev/null; echo ${PIPESTATUS[0]}";
    assert_eq!(shell(scratch.path(), line).expect(0).stdout, b"0\n");
    assert_eq!(names(&scratch.join("d")).len(), 500);
}

#[test]
fn a_closed_standard_stream_that_bytes_should_pass_is_an_error() {
    let scratch = Scratch::new();
    fs::write(scratch.join("d"), "data").unwrap();
    for (line, what) in [
        ("$T pipe <d >&-", "standard output is closed"),
        ("$T pipe --tee t <d >&-", "standard output is closed"),
        ("$T pipe <&-", "standard input is closed"),
        ("$T copy d - >&-", "standard output is closed"),
        ("$T copy - x <&-", "standard input is closed"),
        ("$T copy - - <&- >&-", "is closed"),
        ("$T send --to ./s - <&-", "standard input is closed"),
        ("$T receive --from ./s - >&-", "standard output is closed"),
        ("$T list >&-", "standard output is closed"),
        ("$T plan - d <&-", "standard input is closed"),
        ("$T copy d /dev/stdout >&-", "ENXIO"),
        ("$T copy /dev/stdin x <&-", "ENXIO"),
        ("$T pipe --tee /dev/stdout <d >&-", "closed"),
    ] {
        shell(scratch.path(), line).expect(1).expect_said(what);
        assert_eq!(names(scratch.path()), ["d"], "{line}");
    }
}

#[test]
fn a_question_or_a_manifest_from_a_closed_stream_fails_at_once() {
    let scratch = Scratch::new();
    shell(scratch.path(), "mkdir s; echo 1 >s/d; echo 2 >e").expect(0);
    for line in ["timeout 100 $T copy -i s/d e <&-", "timeout 100 $T verify --manifest - s <&-"] {
        shell(scratch.path(), line).expect(1).expect_said("is closed");
    }
    assert_eq!(fs::read(scratch.join("e")).unwrap(), b"2\n");
}

#[test]
fn a_copy_needs_no_standard_stream_and_none_of_its_files_becomes_one() {
    let scratch = Scratch::new();
    fs::write(scratch.join("d"), "data").unwrap();
    fs::create_dir(scratch.join("tree")).unwrap();
    fs::write(scratch.join("tree/f"), "f").unwrap();
    // If thalweg opened a file as descriptor 1 or 2, it would write the summary or a message into that file.
    for (streams, shown) in [("<&-", "-v"), (">&-", ""), ("2>&-", "-v"), ("<&- >&- 2>&-", "")] {
        let copy = format!(
            "rm -rf x y; $T copy {shown} d x {streams} && $T copy -r {shown} tree y {streams}"
        );
        shell(scratch.path(), &copy).expect(0);
        assert_eq!(fs::read(scratch.join("x")).unwrap(), b"data", "{streams}");
        assert_eq!(fs::read(scratch.join("y/f")).unwrap(), b"f", "{streams}");
        shell(scratch.path(), &format!("$T copy -v gone x {streams}")).expect(1);
        assert_eq!(fs::read(scratch.join("x")).unwrap(), b"data", "{streams}");
    }
    // Without standard output, the requested JSON is lost. Without standard error, no result is lost.
    shell(scratch.path(), "$T copy --json d x >&-").expect(1).expect_said("is closed");
    let ran = shell(scratch.path(), "$T copy d - 2>&-").expect(0);
    assert_eq!(ran.stdout, b"data");
}

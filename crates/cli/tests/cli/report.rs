//! `thalweg report`: a page, Markdown, and clear messages if there are no results.

use crate::support;

use std::{fs, path::PathBuf};

use support::Scratch;

fn saved() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../lab/tests/data/studies")
}

fn result() -> String {
    saved().join("results/machine/2026-11-22/900.json").display().to_string()
}

#[test]
fn a_saved_result_becomes_one_file() {
    let scratch = Scratch::new();
    let ran = scratch.run(&["report", &result(), "-o", "report.html"]).ended(0);
    assert!(ran.text().is_empty() && ran.err.is_empty(), "{}", ran.err);
    let page = String::from_utf8(scratch.read("report.html")).expect("text");
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
    assert!(page.contains("An article that was never written"), "the study file was not found");
    assert_eq!(scratch.names(), ["report.html"]);
    let piped = scratch.run(&["report", &result()]).ended(0).text();
    assert_eq!(piped.lines().count(), page.lines().count());
}

#[test]
fn drawings_are_a_page_for_each_study_and_leave_the_report_where_it_was_asked_for() {
    let scratch = Scratch::new();
    let ran = scratch.run(&["report", &result(), "--drawings", "a/pages"]).ended(0);
    assert!(ran.text().is_empty() && ran.err.is_empty(), "{}", ran.err);
    assert_eq!(scratch.names(), ["a"]);
    let drawn = String::from_utf8(scratch.read("a/pages/900.html")).expect("text");
    assert!(drawn.starts_with("<!DOCTYPE html>") && drawn.contains("<figure"));
    scratch.run(&["report", &result(), "--drawings", "a/pages", "-o", "report.html"]).ended(0);
    assert_eq!(scratch.names(), ["a", "report.html"]);
    scratch.run(&["report", &result(), "--drawings", "report.html"]).ended(1);
    scratch.run(&["report", &result(), "--drawings", "a", "--markdown"]).ended(2);
}

#[test]
fn markdown_goes_to_standard_output_or_to_a_file() {
    let scratch = Scratch::new();
    let text = scratch.run(&["report", "--markdown", &result()]).ended(0).text();
    assert!(
        text.contains(
            "Claims as published 1 reproduced, 2 contradicted, 1 undecided, 1 not runnable."
        ),
        "{text}"
    );
    scratch.run(&["report", "--markdown", &result(), "-o", "r.md"]).ended(0);
    assert_eq!(scratch.read("r.md"), text.as_bytes());
}

#[test]
fn without_a_name_everything_saved_here_is_reported() {
    let scratch = Scratch::new();
    let run = || {
        let mut command = scratch.thalweg(["report", "--markdown"]);
        let output =
            command.env("XDG_STATE_HOME", scratch.path("state")).output().expect("it starts");
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, _, nothing) = run();
    assert!(
        code == Some(2) && nothing.contains("state/thalweg/studies\nhint: run `thalweg study`"),
        "{nothing}"
    );
    scratch.file("state/thalweg/studies/m/1/900.json", fs::read(result()).expect("the result"));
    // A second copy of the same result, in `studies/results`, does not count as a second run.
    scratch.file("studies/results/m/1/900.json", fs::read(result()).expect("the result"));
    let (code, text, _) = run();
    assert!(code == Some(0) && text.starts_with("## 900: ") && !text.contains("2 runs"), "{text}");
    scratch.file("studies/results/m/2/900.json", b"{}");
    let (code, again, err) = run();
    assert!(code == Some(1) && err.contains("m/2/900.json") && again == text, "{err}");
}

#[test]
fn what_cannot_be_reported_is_said_once() {
    let scratch = Scratch::new();
    scratch.file("text", "hello");
    let newer = fs::read_to_string(result()).expect("the result");
    scratch.file("newer.json", newer.replacen("\"schema\":1", "\"schema\":9", 1));
    fs::create_dir(scratch.path("empty")).expect("a folder");
    for (name, code, words) in [
        ("gone.json", 1, "gone.json': no such file or directory (open: ENOENT)"),
        ("text", 2, "text: not a result of `thalweg study`"),
        ("newer.json", 4, "schema 9, but this version reads 1 and 2"),
        ("empty", 2, "no results"),
    ] {
        let ran = scratch.run(&["report", name, "-o", "out.html"]).ended(code);
        assert!(ran.err.contains(words) && ran.err.lines().count() == 1, "{}", ran.err);
        assert!(!scratch.path("out.html").exists());
    }
    let ran = scratch.run(&["report", &result(), "-o", "no/such/folder.html"]).ended(1);
    assert!(
        ran.err.contains("no/such/folder.html': no such file or directory (open: ENOENT)"),
        "{}",
        ran.err
    );
}

#[test]
fn a_report_through_a_link_or_into_a_device_is_written_there() {
    let scratch = Scratch::new();
    scratch.file("kept.html", "old");
    std::os::unix::fs::symlink("kept.html", scratch.path("link.html")).expect("a link");
    scratch.run(&["report", &result(), "-o", "link.html"]).ended(0);
    assert!(scratch.read("kept.html").starts_with(b"<!DOCTYPE"));
    assert!(scratch.path("link.html").is_symlink());
    scratch.run(&["report", &result(), "-o", "/dev/null"]).ended(0);
    let full = scratch.run(&["report", &result(), "-o", "/dev/full"]).ended(1);
    assert!(
        full.err.contains("cannot write '/dev/full': no space left on device (write: ENOSPC)"),
        "{}",
        full.err
    );
}

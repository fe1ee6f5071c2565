//! `thalweg study`: the same command continues an interrupted run.

use crate::support;

use serde_json::Value;
use std::{
    fs,
    path::PathBuf,
    process::{Child, Stdio},
    time::Duration,
};
use support::{Ran, Scratch};

const STUDY: &str = r#"
schema = 1
id = "900"
title = "the harness against itself"
summary = "Variants that do nothing."
[source]
title = "nothing was published"
[[cell]]
name = "nothing"
sizes = ["64KiB"]
arms = ["a", "b"]
[[arm]]
name = "a"
work = "null"
[[arm]]
name = "b"
work = "null"
"#;

const WORDS: [&str; 14] = [
    "study",
    "900",
    "--save",
    "kept",
    "--json",
    "--at",
    ".",
    "--sessions",
    "3",
    "--rounds",
    "2",
    "--sample",
    "1ms",
    "--pause=2s",
];

fn start(scratch: &Scratch, more: &[&str]) -> Child {
    let mut command = scratch.thalweg(WORDS);
    command.args(more).env("XDG_STATE_HOME", scratch.path("state"));
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
}

fn unfinished(scratch: &Scratch) -> Vec<PathBuf> {
    let folder = scratch.path("state/thalweg/unfinished-studies");
    let runs = fs::read_dir(folder).into_iter().flatten().flatten();
    let sessions = runs.flat_map(|run| fs::read_dir(run.path()).into_iter().flatten().flatten());
    let names = sessions.map(|session| session.path());
    names.filter(|path| path.extension().is_some_and(|end| end == "json")).collect()
}

/// Starts the study, sends a signal after its first session, and returns the output and that session.
fn cut(signal: rustix::process::Signal) -> (Scratch, Ran, Value) {
    (0..10).find_map(|_| try_to_cut(signal)).expect("a signal before the second session")
}

/// Returns `None` if the second session ended before the signal arrived, which happens on a busy machine.
fn try_to_cut(signal: rustix::process::Signal) -> Option<(Scratch, Ran, Value)> {
    let scratch = Scratch::new();
    scratch.file("studies/900.toml", STUDY);
    let child = start(&scratch, &[]);
    for _ in 0..15_000 {
        if !unfinished(&scratch).is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, signal).expect("it is ours");
    let ran = Ran::of_child(child);
    let [session] = &unfinished(&scratch)[..] else { return None };
    let session = serde_json::from_slice(&fs::read(session).expect("a session")).expect("JSON");
    Some((scratch, ran, session))
}

fn sessions(result: &Value) -> &Vec<Value> {
    result["arms"][0]["sessions"].as_array().expect("sessions")
}

#[test]
fn an_interrupted_or_killed_run_is_continued_with_its_sessions() {
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::KILL] {
        let (scratch, ran, kept) = cut(signal);
        if signal == rustix::process::Signal::INT {
            assert!(
                ran.err.contains("1 session is kept; run the same command again"),
                "{}",
                ran.err
            );
        }
        let ran = Ran::of_child(start(&scratch, &[])).ended(0);
        assert!(ran.err.contains("900: continuing the run of "), "{}", ran.err);
        assert!(ran.err.contains(": 1 of 3 sessions done"), "{}", ran.err);
        let result = ran.json();
        let taken = sessions(&result);
        let numbers: Vec<_> = taken.iter().map(|one| one["session"].as_u64()).collect();
        assert_eq!(numbers, [Some(0), Some(1), Some(2)]);
        assert_eq!(taken[0]["samples"], kept["log"]["places"][0]["arms"][0]["taken"]["samples"]);
        assert_eq!(result["protocol"]["began"], kept["began"]);
        assert_eq!(result["protocol"]["seed"], kept["seed"]);
        assert!(unfinished(&scratch).is_empty(), "a finished run keeps no session");
    }
}

#[test]
fn another_study_seed_or_parameter_and_a_fresh_run_use_no_kept_session() {
    let (scratch, _, kept) = cut(rustix::process::Signal::KILL);
    let is_continued = |more: &[&str]| {
        let ran = Ran::of_child(start(&scratch, more)).ended(0);
        let same = ran.json()["arms"][0]["sessions"][0]["samples"]
            == kept["log"]["places"][0]["arms"][0]["taken"]["samples"];
        assert_eq!(same, ran.err.contains("continuing"), "{}", ran.err);
        same
    };
    assert!(!is_continued(&["--only", "nothing"]));
    scratch.file("studies/900.toml", STUDY.replace("against itself", "again"));
    assert!(!is_continued(&[]));
    scratch.file("studies/900.toml", STUDY);
    assert_eq!(unfinished(&scratch).len(), 1, "other runs keep it");
    assert!(!is_continued(&["--fresh"]));
    assert!(unfinished(&scratch).is_empty());
}

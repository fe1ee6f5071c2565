//! `thalweg compare` on commands with known times and outputs.

use crate::support;

use serde_json::Value;
use std::fs;

use support::{Ran, Scratch};

fn figure(answer: &Value, row: usize) -> &Value {
    &answer["rows"][row]["figures"][0]
}

/// Repeats a comparison, at most nine times, while other load on the machine hides the difference.
fn decided(scratch: &Scratch, args: &[&str], is_decided: impl Fn(&Ran) -> bool) -> Ran {
    let mut ran = scratch.run(args);
    for _ in 0..9 {
        if is_decided(&ran) {
            break;
        }
        ran = scratch.run(args);
    }
    ran
}

#[test]
fn a_command_that_sleeps_longer_is_slower_in_every_form_of_the_answer() {
    let scratch = Scratch::new();
    let args = ["compare", "-n", "6", "--", "sleep 0.01", "--", "sleep", "0.2"];
    let is_slower = |ran: &Ran| ran.text().contains("slower");
    let text = decided(&scratch, &args, is_slower).ended(0).text();
    assert!(text.starts_with("sleep 0.2: slower than sleep 0.01: "), "{text}");
    assert!(text.contains("6 rounds; noise"), "{text}");
    let json = [&["compare", "--json"][..], &args[1..]].concat();
    let ran = decided(&scratch, &json, is_slower).ended(0);
    let answer: Value = serde_json::from_str(&ran.text()).unwrap();
    assert_eq!(figure(&answer, 1)["verdict"], "slower");
    assert!(figure(&answer, 1)["ratio"]["lo"].as_f64().unwrap() > 1.0, "{answer}");
    assert_eq!(answer["rows"][1]["against"], 0);
    assert_eq!(answer["rows"][1]["command"][1], "0.2");
    let marked = scratch.run(&[&["compare", "--markdown"][..], &args[1..]].concat()).ended(0);
    assert!(marked.text().contains("| `sleep 0.2` | wall time |"), "{}", marked.text());
    let exports = ["compare", "--export", "csv=runs.csv", "--export", "json=answer.json"];
    scratch.run(&[&exports[..], &args[1..]].concat()).ended(0);
    let runs = String::from_utf8(scratch.read("runs.csv")).unwrap();
    assert_eq!(runs.lines().count(), 1 + 6 * 3);
    assert!(serde_json::from_slice::<Value>(&scratch.read("answer.json")).is_ok());
}

#[test]
fn a_slower_command_fails_a_build_only_if_the_whole_interval_lies_beyond_the_share() {
    let scratch = Scratch::new();
    let with = |fail: &str, second: &str, status| {
        let args = ["compare", "-n", "6", "--fail-if", fail, "--", "sleep 0.02", "--", second];
        decided(&scratch, &args, |ran| ran.code == status).ended(status)
    };
    let failed = with("slower", "sleep 0.2", 1);
    assert!(failed.err.contains("than the first command: sleep 0.2"), "{}", failed.err);
    with("slower=50%", "sleep 0.2", 1);
    with("slower=100000%", "sleep 0.2", 0);
    with("slower", "true", 0);
}

#[test]
fn what_fails_or_prints_something_else_is_named_and_the_status_is_3() {
    let scratch = Scratch::new();
    let args = ["compare", "-n", "2", "--", "true", "--", "sh", "-c", "echo lost >&2; exit 7"];
    let ran = scratch.run(&args).ended(3);
    assert!(ran.err.contains("exit status: 7: lost"), "{}", ran.err);
    assert!(ran.text().contains("no verdict"), "{}", ran.text());
    scratch.run(&[&["compare", "-i"], &args[1..]].concat()).ended(0);
    let args = ["compare", "-n", "2", "--same-output", "--", "echo one", "echo two"];
    let ran = scratch.run(&args).ended(3);
    assert!(ran.err.contains("differs from the first output at byte 1"), "{}", ran.err);
    scratch.run(&["compare", "-n", "2", "--same-output", "--", "echo one", "echo one"]).ended(0);
    let args = ["compare", "-n", "2", "--check", "test -e there", "--", "true", "--", "true"];
    assert!(scratch.run(&args).ended(3).err.contains("--check failed"));
    scratch.file("there", "");
    scratch.run(&args).ended(0);
}

#[test]
fn a_scan_compares_at_each_value_and_one_command_with_itself() {
    let scratch = Scratch::new();
    let json = |args: &[&str]| {
        let ran = scratch.run(&[&["compare", "-n", "2", "--json"], args].concat()).ended(0);
        serde_json::from_str::<Value>(&ran.text()).unwrap()
    };
    let answer = json(&["--scan", "n=1,2", "--", "echo a{n}", "--", "echo", "b{n}"]);
    let rows = answer["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["echo a1", "echo b1", "echo a2", "echo b2"]);
    let against: Vec<&Value> = rows.iter().map(|row| &row["against"]).collect();
    assert_eq!(against, [&Value::Null, &Value::from(0), &Value::Null, &Value::from(2)]);
    let answer = json(&["--scan", "n=1,2", "-s", "m=x,y", "--name", "e", "--", "echo {n}{m}"]);
    let rows = answer["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[3]["name"]), (4, &Value::from("e, n=2, m=y")));
    assert_eq!(rows[3]["against"], 0);
}

#[test]
fn a_number_that_is_printed_judges_and_a_shell_is_there_only_if_asked_for() {
    let scratch = Scratch::new();
    let args = ["compare", "-n", "4", "--json", "-m", "regex:([0-9]+) MB/s", "--"];
    let ran = scratch.run(&[&args[..], &["echo 100 MB/s", "echo 300 MB/s"]].concat()).ended(0);
    let answer: Value = serde_json::from_str(&ran.text()).unwrap();
    assert_eq!(figure(&answer, 1)["metric"], "printed");
    assert_eq!(figure(&answer, 1)["verdict"], "faster");
    assert!((figure(&answer, 1)["ratio"]["ratio"].as_f64().unwrap() - 3.0).abs() < 1e-9);
    let args = ["compare", "-n", "2", "--same-output", "--", "echo $((1+1))", "echo 2"];
    scratch.run(&args).ended(3);
    scratch.run(&[&["compare", "--shell"], &args[1..]].concat()).ended(0);
}

#[test]
fn nonsense_is_a_usage_error_before_anything_runs() {
    let scratch = Scratch::new();
    for (args, says) in [
        (&["--", "touch ran"][..], "a single command"),
        (&["--", "true", "touch ran"], "write `--` between two commands"),
        (&["--"], "required"),
        (&["--", "touch ran", "no-such-command-here x"], "not found in PATH"),
        (&["--scan", "n=1", "--", "touch ran", "true"], "no command contains {n}"),
        (&["--scan", "n", "--", "touch ran", "true"], "NAME=A,B"),
        (&["--fail-if", "quicker", "--", "touch ran", "true"], "expected slower"),
        (
            &["--name", "x", "--", "touch ran", "true"],
            "--name was given 1 times, but there are 2 commands",
        ),
        (&["--export", "pdf", "--", "touch ran", "true"], "expected csv"),
        (&["-n", "1", "--", "touch ran", "true"], "2..="),
        (&["--", "touch 'ran", "true"], "missing closing quote"),
    ] {
        let ran = scratch.run(&[&["compare"], args].concat()).ended(2);
        assert!(ran.err.contains(says), "{args:?}: {}", ran.err);
        assert!(!fs::exists(scratch.path("ran")).unwrap(), "{args:?}");
    }
}

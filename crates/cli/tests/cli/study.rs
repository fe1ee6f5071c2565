//! `thalweg study`: listing, checking, running and saving studies, and errors in study files.

use crate::support;

use serde_json::Value;

use support::{Ran, Scratch};

const STUDY: &str = r#"
schema = 1
id = "900"
title = "the harness against itself"
summary = "Ways that do nothing."
[source]
title = "nothing was published"
[[cell]]
name = "nothing"
sizes = ["64KiB", "1MiB"]
quick_sizes = ["64KiB"]
arms = ["a", "b"]
[[arm]]
name = "a"
work = "null"
[[arm]]
name = "b"
work = "null"
origin = "fair"
[[claim]]
id = "900.1"
kind = "ratio"
text = "a takes nothing of the time of b"
quote = "A takes no time at all."
published = 0.01
[[claim.check]]
test = "ratio"
arms = ["a", "b"]
at = { cell = "nothing", size = "64KiB" }
within = [0.0, 1e-80]
[[claim]]
id = "900.2"
kind = "number"
text = "it takes no time"
not_runnable = "an absolute figure is of one machine"
[[today]]
task = "do nothing"
cell = "nothing"
size = "64KiB"
arms = ["a", "b"]
"#;

fn scratch() -> Scratch {
    let scratch = Scratch::new();
    scratch.file("studies/900-null.toml", STUDY);
    scratch
}

/// Runs a short study, and saves nothing in the home directory.
fn short(scratch: &Scratch, more: &[&str]) -> Ran {
    let few = ["--sessions", "3", "--rounds", "3", "--sample", "1ms", "--pause", "0s", "--at", "."];
    let mut words = vec!["study", "900", "--quick"];
    words.extend(few);
    words.extend(more);
    scratch.run(&words)
}

#[test]
fn studies_are_listed_with_what_is_known_of_them() {
    let scratch = scratch();
    let text = scratch.run(&["study", "--save", "kept"]).ended(0).text();
    assert!(text.contains("900  the harness against itself") && text.contains("no result yet"));
    short(&scratch, &["--save", "kept"]).ended(0);
    let text = scratch.run(&["study", "--save", "kept"]).ended(0).text();
    assert!(text.contains("1 result; newest"), "{text}");
    assert!(text.contains("1 not runnable"), "{text}");
    let json = scratch.run(&["study", "--save", "kept", "--json"]).ended(0).json();
    assert_eq!(json["studies"][0]["id"], "900");
    assert_eq!(json["studies"][0]["results"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_run_prints_claims_arms_ratios_and_its_noise_in_eighty_columns() {
    let scratch = scratch();
    let mut command = scratch.thalweg(["study", "-v", "900", "--quick", "--no-save", "--at", "."]);
    command.args(["--sessions", "3", "--rounds", "3", "--sample", "1ms", "--pause", "0s"]);
    let output = command.env("COLUMNS", "80").output().expect("it starts");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for words in [
        "900.1 as published: contradicted \"A takes no time at all.\"",
        "; published 0.01",
        "the fastest methods today: To do nothing, use \"",
        "900.2 as published: not runnable",
        "an absolute figure is of one machine",
        "nothing 64KiB",
        "time relative to a:",
        "One variant runs twice per round.",
        "2 comparisons; ",
        "The harness takes",
        "--quick --sessions 3 --rounds 3",
    ] {
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(words), "{words}: {text}");
    }
    assert!(!text.contains('\x1b'), "nobody asked for colours");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(!text.contains("1MiB"), "a quick run has the quick sizes");
    let progress = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(progress.contains("session 3 of 3") && progress.contains("left"), "{progress}");
    assert_eq!(scratch.names(), ["studies"], "nothing is left behind");
}

#[test]
fn a_saved_result_is_printed_like_a_run_and_a_task_needs_arms_of_its_cell() {
    let scratch = scratch();
    let ran = short(&scratch, &["--save", "kept"]).ended(0).text();
    let printed = ran.strip_suffix("hint: -v shows reasons and measurements\n").expect("a hint");
    let listed = scratch.run(&["study", "--rejudge", "kept"]).ended(0).text();
    let file = listed.lines().next().expect("the path of the result");
    let again = scratch.run(&["study", "--rejudge", file]).ended(0).text();
    assert_eq!(again, format!("{printed}{listed}"));
    for (right, wrong, reason) in [
        ("arms = [\"a\", \"b\"]\n\n", "arms = [\"a\", \"x\"]\n", "unknown arm \"x\"; known: a, b"),
        ("arms = [\"a\", \"b\"]\n\n", "arms = [\"a\"]\n", "it needs at least two arms"),
        ("size = \"64KiB\"\narms", "size = \"1KiB\"\narms", "unknown size \"1KiB\""),
        ("cell = \"nothing\"\nsize", "cell = \"none\"\nsize", "unknown cell \"none\""),
    ] {
        let text = format!("{STUDY}\n").replace(right, wrong);
        scratch.file("studies/900-null.toml", &text);
        let refused = scratch.run(&["study", "--check", "studies/900-null.toml"]).ended(2);
        let words = format!("today \"do nothing\": {reason}");
        assert!(refused.err.contains(&words), "{words}: {}", refused.err);
    }
}

#[test]
fn json_and_csv_have_every_sample() {
    let scratch = scratch();
    let json = short(&scratch, &["--json", "--csv", "all.csv", "--save", "kept"]).ended(0).json();
    assert_eq!((&json["study"], &json["schema"]), (&"900".into(), &1.into()));
    assert_eq!(json["claims"][0]["verdict"], "contradicted");
    assert_eq!(json["ratios"][0]["same_promises"], true);
    let cost = &json["costs"][0];
    assert!(cost["cell"] == "nothing" && cost["seconds"].as_f64() > Some(0.0), "{cost}");
    let arms = json["arms"].as_array().expect("arms");
    let samples = |arm: &Value| {
        let sessions = arm["sessions"].as_array().expect("sessions").iter();
        sessions.map(|s| s["samples"].as_array().map_or(0, Vec::len)).sum::<usize>()
    };
    // Three sessions of three rounds. Each round runs two arms, and one of them a second time.
    assert_eq!(arms.iter().map(samples).sum::<usize>(), 27);
    let csv = String::from_utf8(scratch.read("all.csv")).expect("text");
    assert_eq!(csv.lines().count(), 28);
    let columns = |line: &str| line.split(',').count();
    assert!(csv.lines().all(|line| columns(line) == columns(csv.lines().next().expect("a head"))));
    // The saved result has all samples, too, in the file beside it.
    let report = scratch.run(&["report", "kept"]).ended(0).text();
    assert!(report.contains("27; "), "the number of samples");
}

#[test]
fn what_cannot_be_kept_is_shown_all_the_same() {
    let scratch = scratch();
    scratch.file("taken", "a file, where a folder would have to be");
    let ran = short(&scratch, &["--save", "taken", "--csv", "/dev/full", "--json"]).ended(1);
    assert_eq!(ran.json()["claims"][0]["verdict"], "contradicted");
    let said = &ran.err;
    assert!(said.contains("taken") && said.contains("'/dev/full'"), "{said}");
    assert!(said.contains("sessions are kept; run the same command again"), "{said}");
    let ran = short(&scratch, &["--save", "taken", "--csv", "all.csv"]).ended(1);
    assert!(ran.text().contains("900.1 as published: contradicted"), "{}", ran.text());
    assert_eq!(String::from_utf8(scratch.read("all.csv")).expect("text").lines().count(), 28);
}

#[test]
fn a_file_of_samples_that_cannot_be_created_is_an_error_before_the_run() {
    let scratch = scratch();
    let ran = short(&scratch, &["--csv", "no/such.csv"]).ended(1);
    assert!(ran.err.contains("cannot open 'no/such.csv'"), "{}", ran.err);
    assert_eq!(ran.text(), "");
    assert!(!ran.err.contains("saved in"), "{}", ran.err);
}

#[test]
fn the_command_that_repeats_a_run_is_one_that_a_shell_reads() {
    let scratch = scratch();
    std::fs::create_dir(scratch.path("a b")).expect("a folder");
    let args =
        ["study", "./studies/900-null.toml", "--quick", "--no-save", "--at", "a b", "--json"];
    let few = ["--sessions", "2", "--rounds", "2", "--sample", "1ms", "--pause", "0s"];
    let json = scratch.run(&[&args[..], &few].concat()).ended(0).json();
    let command = json["protocol"]["command"].as_str().expect("a command").to_owned();
    assert!(command.starts_with("thalweg study ./studies/900-null.toml --quick"), "{command}");
    let again = command.replacen("thalweg", "$T", 1);
    let repeated = scratch.shell(&format!("{again} --no-save --json")).ended(0).json();
    assert_eq!(repeated["protocol"]["command"], command.as_str());
}

#[test]
fn a_study_may_lie_anywhere_and_cells_and_sizes_can_be_chosen() {
    let scratch = scratch();
    scratch.file("mine.toml", STUDY.replace("\"900\"", "\"mine\""));
    let few = ["--sessions", "2", "--rounds", "2", "--sample", "1ms", "--pause", "0s", "--at", "."];
    let run = |words: &[&str]| {
        let mut all = vec!["study", "./mine.toml", "--no-save", "--json"];
        all.extend(few);
        all.extend(words);
        scratch.run(&all)
    };
    let json = run(&["--only", "nothing", "--sizes", "1MiB"]).ended(0).json();
    assert_eq!((&json["study"], &json["arms"][0]["size"]), (&"mine".into(), &"1MiB".into()));
    assert!(run(&["--only", "other"]).ended(2).err.contains("its cells are nothing"));
    assert!(run(&["--sizes", "5GiB"]).ended(2).err.contains("none of these sizes"));
    assert!(run(&["--sizes", "5 gigs"]).ended(2).err.contains("'5 gigs' is not a size"));
    assert!(run(&["--pin", "99999"]).ended(1).err.contains("CPU 99999 does not exist"));
}

#[test]
fn several_studies_take_turns() {
    let scratch = scratch();
    scratch.file("studies/901.toml", STUDY.replace("900", "901"));
    let few = ["--sessions", "2", "--rounds", "2", "--sample", "1ms", "--pause", "0s", "--at", "."];
    let mut words = vec!["study", "-v", "all", "--quick", "--no-save"];
    words.extend(few);
    let ran = scratch.run(&words).ended(0);
    assert!(ran.text().contains("together as published 2 contradicted"), "{}", ran.text());
    let (costs, rounds): (Vec<&str>, Vec<&str>) =
        ran.err.lines().partition(|line| line.starts_with("slowest of "));
    assert!(rounds[0].starts_with("2 sessions, about "), "{}", ran.err);
    let order: Vec<&str> = rounds[1..].iter().filter_map(|line| line.get(..3)).collect();
    assert_eq!(order, ["900", "901", "900", "901"], "{}", ran.err);
    assert!(costs.len() == 1 && costs[0].starts_with("slowest of 2 test cases: 90"), "{costs:?}");
}

#[test]
fn wrong_files_and_names_are_reported_with_the_valid_ones() {
    let scratch = scratch();
    assert!(
        scratch
            .run(&["study", "--check"])
            .ended(0)
            .text()
            .contains("valid: 1 test case, 2 variants, 2 claims")
    );
    scratch.file("studies/901.toml", STUDY.replace("\"null\"\norigin", "\"nul\"\norigin"));
    let ran = scratch.run(&["study", "--check"]).ended(2);
    assert!(ran.err.contains("901.toml: arm \"b\": unknown work \"nul\"; known:"), "{}", ran.err);
    let ran = scratch.run(&["study", "901", "--no-save"]).ended(2);
    assert!(ran.err.contains("901.toml"), "{}", ran.err);
    let ran = scratch.run(&["study", "xyz", "--no-save"]).ended(2);
    assert!(ran.err.contains("no study \"xyz\"") && ran.err.contains("found 900"), "{}", ran.err);
    let ran = scratch.run(&["study", "none.toml"]).ended(2);
    assert!(ran.err.contains("none.toml: No such file"), "{}", ran.err);
    let ran = scratch.run(&["study", "--check", "studies"]).ended(2);
    assert!(ran.err.contains("not a file"), "{}", ran.err);
    scratch.file("syntax.toml", "schema = 1\nid = = 2\n");
    let ran = scratch.run(&["study", "--check", "syntax.toml"]).ended(2);
    assert!(ran.err.contains("line 2"), "{}", ran.err);
}

/// Runs the command in the scratch directory, with other directories for its state and its cache.
fn at_home(scratch: &Scratch, words: &[&str]) -> Ran {
    let mut command = scratch.thalweg(words);
    command.env_remove("HOME").env("XDG_CACHE_HOME", scratch.path("cache"));
    command.env("XDG_STATE_HOME", scratch.path("state"));
    Ran::of_child(
        command
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("it starts"),
    )
}

#[test]
fn the_binary_carries_the_studies_of_the_articles_and_their_programs() {
    let scratch = Scratch::new();
    let listed = at_home(&scratch, &["study"]).ended(0).text();
    for id in ["000", "001", "002", "003", "004"] {
        assert!(listed.contains(&format!("\n{id}  ")) || listed.starts_with(id), "{listed}");
    }
    let checked = at_home(&scratch, &["study", "--check", "002", "--at", "."]).ended(0);
    assert!(checked.text().contains("002-splice.toml: valid: "), "{}", checked.text());
    // A directory `studies` takes precedence in the list. The built-in studies can still be run.
    scratch.file("studies/900-null.toml", STUDY);
    let listed = at_home(&scratch, &["study"]).ended(0).text();
    assert!(listed.contains("900  ") && !listed.contains("002  "), "{listed}");
    assert!(at_home(&scratch, &["study", "--check", "002", "--at", "."]).ended(0).err.is_empty());
    let nowhere = at_home(&scratch, &["study", "777", "--no-save"]).ended(2).err;
    assert!(nowhere.contains("found 900; included in this program: 000"), "{nowhere}");
    let empty = Scratch::new();
    let mut homeless = empty.thalweg(["study"]);
    let homeless = homeless.env_remove("HOME").env("XDG_CACHE_HOME", "/proc/none").output();
    let said = String::from_utf8_lossy(&homeless.expect("it starts").stderr).into_owned();
    assert!(said.contains("no directory of studies") && said.contains("XDG_CACHE_HOME"), "{said}");
}

#[test]
fn ids_of_studies_complete() {
    let scratch = Scratch::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = scratch.run(&["completions", shell]).ended(0).text();
        assert!(script.contains("002") && script.contains("004"), "{shell}");
    }
    let typed = "eval \"$($T completions bash)\"; COMP_WORDS=(thalweg study 00); COMP_CWORD=2; \
                 _thalweg thalweg 00 study; echo \"${COMPREPLY[@]}\"";
    assert_eq!(scratch.shell(typed).ended(0).text().trim(), "000 001 002 003 004");
}

#[test]
fn a_new_study_checks_and_runs_as_it_is() {
    let scratch = Scratch::new();
    let made = at_home(&scratch, &["study", "--new", "mine"]).ended(0).text();
    assert_eq!(made, "mine.toml\nmine.c\nworker.h\n");
    assert!(at_home(&scratch, &["study", "--new", "mine"]).ended(2).err.contains("already exists"));
    assert!(
        at_home(&scratch, &["study", "--new", "My"])
            .ended(2)
            .err
            .contains("the name of a study consists")
    );
    let checked = at_home(&scratch, &["study", "--check", "./mine.toml", "--at", "."]).ended(0);
    assert!(
        checked.text().contains("valid: 1 test case, 3 variants, 1 claim"),
        "{}",
        checked.text()
    );
    let words = ["study", "./mine.toml", "--no-save", "--quick", "--json", "--at", "."];
    let few = ["--sessions", "2", "--rounds", "2", "--sample", "1ms", "--pause", "0s"];
    let json = at_home(&scratch, &[&words[..], &few].concat()).ended(0).json();
    assert_eq!(json["missing"].as_array().map(Vec::len), Some(0), "{json}");
    assert_eq!(json["arms"].as_array().map(Vec::len), Some(3));
    assert!(json["claims"][0]["measured"].is_number() && json["claims"][0]["wider"].is_object());
}

/// Returns the code blocks of a page in this language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let begins = format!("\n```{language}\n");
    let blocks = page.split(&begins).skip(1);
    blocks.map(|rest| rest.split("\n```").next().unwrap_or_default().to_owned() + "\n").collect()
}

#[test]
fn the_examples_of_the_page_run_in_a_fresh_folder_and_wrong_ones_get_the_right_error() {
    let scratch = Scratch::new();
    let page = include_str!("../../../../docs/reference/studies.md");
    let (studies, programs) = (blocks(page, "toml"), blocks(page, "c"));
    assert_eq!((studies.len(), programs.len()), (3, 1));
    at_home(&scratch, &["study", "--new", "mine"]).ended(0);
    scratch.file("fills.c", &programs[0]);
    for (name, text) in ["send", "fills", "commands"].into_iter().zip(&studies) {
        let file = format!("./{name}.toml");
        scratch.file(&file, text);
        let checked = at_home(&scratch, &["study", "--check", &file, "--at", "."]).ended(0);
        assert!(
            checked.text().contains(": valid: 1 test case, ") && checked.err.is_empty(),
            "{}",
            checked.err
        );
        let words = ["study", &file, "--no-save", "--quick", "--json", "--at", "."];
        let few = ["--sessions", "2", "--rounds", "2", "--sample", "1ms", "--pause", "0s"];
        let json = at_home(&scratch, &[&words[..], &few].concat()).ended(0).json();
        assert_eq!(json["missing"].as_array().map(Vec::len), Some(0), "{json}");
    }
    let fills = &studies[1];
    for (right, wrong, code, words) in [
        ("title = \"Mem", "titel = \"Mem", 2, "unknown field `titel`"),
        (
            "work = \"worker\"",
            "work = \"wroker\"",
            2,
            "unknown work \"wroker\"; known: bulk, memory",
        ),
        (
            "mechanism = \"read-write\"",
            "mechanism = \"read-wriet\"",
            2,
            "unknown mechanism \"read-wriet\"",
        ),
        ("tuning = { buffer", "tuning = { bufer", 2, "no knob \"bufer\"; it has [\"buffer\"]"),
        ("sink = \"null\"", "sink = \"nul\"", 2, "unknown variant `nul`"),
        (
            "program = \"fills.c\", cflags = [\"-O1\"]",
            "program = \"fils.c\", cflags = [\"-O1\"]",
            3,
            "fils.c",
        ),
        ("cells = [\"fill\"]", "cells = [\"fil\"]", 2, "unknown cell \"fil\"; known: fill"),
        ("arms = [\"memset\", \"loop\"]", "arms = [\"memset\", \"lop\"]", 2, "unknown arm \"lop\""),
        ("kind = \"conclusion\"", "kind = \"conclusio\"", 2, "unknown kind of claim"),
        ("test = \"everywhere\"", "test = \"everwhere\"", 2, "unknown variant `everwhere`"),
        ("within = [0.0, 1.0]", "within = [1.0, 0.0]", 2, "the lower end comes first"),
        ("within = [0.0, 1.0]", "within = [0.99, 1.0]", 2, "no run can show"),
        ("sizes = [\"1MiB\"]", "sizes = [\"1 Mob\"]", 2, "is not a size"),
        ("args = [\"way=loop\"]", "args = [\"way=lop\"]", 3, "way=lop: not known here"),
        ("args = [\"way=loop\"]", "args = [\"wya=loop\"]", 3, "wya: no such parameter"),
        ("cflags = [\"-O1\"]", "cflags = [\"--no-such-flag\"]", 3, "cannot build"),
    ] {
        assert!(fills.contains(right), "{right}");
        scratch.file("wrong.toml", fills.replacen(right, wrong, 1));
        let ran = at_home(&scratch, &["study", "--check", "./wrong.toml", "--at", "."]).ended(code);
        assert!(ran.err.contains(words), "{wrong}: {}", ran.err);
    }
}

#[test]
fn an_arm_that_did_not_run_is_an_incomplete_run_unless_that_was_allowed() {
    let scratch = scratch();
    let lacking = STUDY.replacen(
        "work = \"null\"\norigin",
        "work = \"worker\"\nwith = { program = \"gone.c\" }\norigin",
        1,
    );
    scratch.file(
        "studies/900-null.toml",
        lacking.replace("sizes = [\"64KiB\", \"1MiB\"]", "sizes = [\"64KiB\"]"),
    );
    let ran = short(&scratch, &["--no-save"]).ended(3);
    assert!(ran.err.contains("1 variant cannot run here"), "{}", ran.err);
    assert!(ran.text().contains("900.1 as published: not runnable"), "{}", ran.text());
    short(&scratch, &["--no-save", "--allow-missing"]).ended(0);
    // `--check` also reports the variant that cannot run, without a measurement.
    let ran = scratch.run(&["study", "--check", "900", "--at", "."]).ended(3);
    let told = "cannot run here: test case \"nothing\", variant \"b\": ";
    assert!(ran.err.contains(told) && ran.err.contains("gone.c"), "{}", ran.err);
    scratch.run(&["study", "--check", "900", "--at", ".", "--allow-missing"]).ended(0);
}

#[test]
fn helpers_are_hidden_and_refuse_what_they_do_not_know() {
    let scratch = Scratch::new();
    assert!(!scratch.run(&["--help"]).ended(0).text().contains("helper"));
    assert!(scratch.run(&["helper", "none"]).ended(2).err.contains("unknown kind \"none\""));
    assert!(scratch.run(&["helper", "session"]).ended(1).err.contains("invalid job"));
    assert!(scratch.run(&["helper", "load", "busy"]).ended(1).err.contains("arguments of load"));
}

#[test]
fn an_interrupt_ends_the_run_and_leaves_nothing() {
    let scratch = scratch();
    // The test interrupts the command during this pause.
    let words = ["study", "900", "--save", "kept", "--at", ".", "--sessions", "2", "--pause", "1h"];
    let started = || scratch.names().iter().any(|name| name.starts_with(".study.thalweg-part"));
    interrupt(scratch.thalweg(words), &started);
    assert_eq!(scratch.names(), ["studies"]);
}

#[test]
fn an_interrupt_leaves_nothing_on_other_file_systems_either() {
    let scratch = scratch();
    let copying = r#"work = "program"
with = { command = ["sh", "-c", "cp $0 $1; : >busy; exec sleep 10", "{source}", "{sink}"], place = "odd" }"#;
    scratch.file("studies/900-null.toml", STUDY.replace("work = \"null\"", copying));
    std::fs::create_dir(scratch.path("mount")).expect("a folder");
    let mut command = scratch.thalweg(["study", "900", "--quick", "--no-save", "--at", "."]);
    command.env("THALWEG_MOUNTS", format!("odd={}", scratch.path("mount").display()));
    interrupt(command, &|| scratch.names().contains(&"busy".to_owned()));
    assert_eq!(scratch.names(), ["busy", "mount", "studies"]);
    let left = thalweg_testing::names(&scratch.path("mount"));
    assert!(left.is_empty(), "{left:?}");
}

/// Starts the command and interrupts it once `started` returns `true`. Its child processes do not receive the signal.
fn interrupt(mut command: std::process::Command, started: &dyn Fn() -> bool) {
    let child = command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    for _ in 0..2400 {
        if started() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(started(), "it does not begin");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it is ours");
    let ran = Ran::of_child(child).ended(130);
    assert!(ran.err.contains("has no result"), "{}", ran.err);
}

#[test]
fn a_result_grows_by_the_sessions_of_another_run() {
    let scratch = scratch();
    short(&scratch, &["--save", "kept"]).ended(0);
    let list = scratch.run(&["study", "--save", "kept", "--json"]).ended(0).json();
    let path = list["studies"][0]["results"][0]["path"].as_str().expect("a path").to_owned();
    let ran = short(&scratch, &["--extend", &path, "--only", "nothing", "-v"]);
    let ran = ran.ended(0);
    assert!(ran.text().contains("3 more sessions of nothing"), "{}", ran.text());
    let text = std::fs::read_to_string(scratch.path(&path)).expect("the result");
    let result: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(result["arms"][0]["sessions"].as_array().map(Vec::len), Some(6));
    assert_eq!(result["protocol"]["sessions"], 3);
    scratch.run(&["study", "--rejudge", &path]).ended(0);
    for no_result in ["none.json", "studies/900-null.toml"] {
        let said = scratch.run(&["study", "900", "--extend", no_result]).ended(2).err;
        assert!(said.contains(no_result), "{said}");
    }
}

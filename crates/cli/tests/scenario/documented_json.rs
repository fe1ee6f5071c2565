//! The JSON of every command matches docs/reference/schemas, and docs/reference/json.md documents all of its fields.

use rustix::process::Signal;
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::support::{
    Scratch, bytes, interrupted, run, schema::faults, shell, sshd::OtherMachine, thalweg,
};

fn docs() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference"))
}

fn schema(name: &str) -> Value {
    let path = docs().join("schemas").join(name).with_extension("json");
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[track_caller]
fn expect(name: &str, value: &Value) {
    let found = faults(value, &schema(name));
    // A result of a study may be several hundred kilobytes long.
    let text: String = value.to_string().chars().take(2000).collect();
    assert!(found.is_empty(), "{name}.json: {found:#?}\nin {text}");
}

#[test]
fn copies_pipes_and_progress_print_what_their_schemas_say() {
    let here = Scratch::new();
    let (source, copy) = (here.join("source"), here.join("copy"));
    fs::create_dir(&source).unwrap();
    bytes::write(&source.join("file"), 1, 300_000);
    let mut command = thalweg();
    command.args(["copy", "-r", "--verify", "--json", "--progress=json"]).arg(&source).arg(&copy);
    let ran = run(&mut command).expect(0);
    expect("answer", &ran.json());
    for line in ran.stderr.lines() {
        expect("progress", &serde_json::from_str(line).unwrap());
    }
    let tuned = run(thalweg().args(["copy", "-rT", "--tune", "--json"]).arg(&source).arg(&copy));
    expect("answer", &tuned.expect(0).json());
    for (name, words) in
        [("verify", vec!["verify", "-T", "--json"]), ("manifest", vec!["manifest"])]
    {
        let mut command = thalweg();
        command.args(words).arg(&source);
        if name == "verify" {
            command.arg(&copy);
            expect(name, &run(&mut command).expect(0).json());
        } else {
            expect(name, &run(command.arg("--json")).expect(0).json_on_stderr());
        }
    }
    expect_errors(&here.join("gone"), &copy);
    let mut pipe = thalweg();
    pipe.args(["pipe", "--json", "--progress=json"]);
    pipe.stdin(fs::File::open(source.join("file")).unwrap());
    for line in run(&mut pipe).expect(0).stderr.lines() {
        let value: Value = serde_json::from_str(line).unwrap();
        let name = if value["progress"].is_object() { "progress" } else { "answer" };
        expect(name, &value);
    }
}

#[test]
fn fleets_print_what_their_schemas_say() {
    let here = Scratch::new();
    fs::create_dir(here.join("tree")).unwrap();
    bytes::write(&here.join("tree/file"), 1, 300_000);
    let mut late = thalweg();
    late.args(["copy", "-a", "--json", "--shard=1/2", "--wait=0s", "tree", "copy"]);
    run(late.current_dir(here.path())).expect(1);
    let mut fleet = thalweg();
    fleet.args(["fleet", "--json", "copy"]).current_dir(here.path());
    expect("fleet", &run(&mut fleet).expect(0).all_json());
    let mut copy = thalweg();
    copy.args(["copy", "-a", "--json", "--shard=0/2", "tree", "copy"]).current_dir(here.path());
    let said = run(&mut copy).expect(0).json();
    expect("answer", &said);
    assert_eq!(said["fleet"]["workers"][0]["mechanisms"][0]["bytes"], 300_000);
}

#[test]
fn plans_lists_and_looks_print_what_their_schemas_say() {
    for (name, words) in [
        ("plan", &["plan", "--json", ".", "/dev/null"][..]),
        ("plan", &["plan", "--json", "memory:", "memory:"]),
        ("plan", &["plan", "--json", "loan:", "process:"]),
        ("list", &["list", "--json"]),
        ("doctor", &["doctor", "--json"]),
    ] {
        let ran = run(thalweg().args(words));
        expect(name, &ran.all_json());
    }
    let studies = docs().join("../../studies");
    let ran = run(thalweg().args(["study", "--json"]).env("THALWEG_STUDIES", studies));
    expect("studies", &ran.expect(0).all_json());
}

#[test]
fn comparisons_print_what_their_schema_says() {
    let mut command = thalweg();
    command.args(["compare", "-n", "2", "--json", "--", "true", "--", "true"]);
    expect("compare", &run(&mut command).expect(0).all_json());
}

#[test]
fn a_study_that_was_run_prints_what_its_schema_says_and_kept_results_hold_it() {
    let here = Scratch::new();
    fs::write(here.join("900.toml"), crate::few_threads::STUDY).unwrap();
    let mut command = thalweg();
    command.args(["study", "900.toml", "--quick", "--json", "--no-save", "--at", "."]);
    command.args(["--sessions", "2", "--rounds", "3", "--sample", "1ms", "--pause", "0s"]);
    expect("study", &run(command.current_dir(here.path())).expect(0).all_json());
    let results = fs::read_dir(docs().join("../../studies/results")).unwrap();
    let inside =
        |path: PathBuf| fs::read_dir(path).into_iter().flatten().map(|one| one.unwrap().path());
    let files = results.flat_map(|one| inside(one.unwrap().path())).flat_map(inside);
    let mut count = 0;
    for path in files.filter(|path| path.extension().is_some_and(|end| end == "json")) {
        expect("study", &serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap());
        count += 1;
    }
    assert!(count > 0, "no result is kept");
}

#[test]
fn a_copy_that_did_not_end_names_what_it_left() {
    let here = Scratch::new();
    fs::create_dir(here.join("tree")).unwrap();
    bytes::write(&here.join("tree/file"), 1, 8 << 20);
    let ran = interrupted(&here, &["--resume", "--json"], Signal::INT);
    expect("answer", &ran.json());
    assert_eq!(ran.json()["unfinished"], serde_json::json!([".new.thalweg-part"]));
    assert_eq!(ran.json()["torn"], serde_json::json!([]));
}

#[test]
fn the_page_about_json_names_every_field_of_every_schema() {
    let page = fs::read_to_string(docs().join("json.md")).unwrap();
    for entry in fs::read_dir(docs().join("schemas")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let schema = schema(name.trim_end_matches(".json"));
        assert!(page.contains(&format!("schemas/{name}")), "{name} has no link");
        for field in schema["properties"].as_object().unwrap().keys() {
            assert!(page.contains(&format!("`{field}`")), "{name}: {field}");
        }
    }
}

#[test]
fn the_checker_finds_what_is_wrong() {
    let schema = schema("progress");
    let wrong = serde_json::json!({ "progress": { "bytes": "1", "more": 1 } });
    let found = faults(&wrong, &schema).join("\n");
    for part in ["bytes: not integer", "more: not in the schema", "seconds: missing"] {
        assert!(found.contains(part), "{part} not in {found}");
    }
}

/// Checks that a command that fails before it has results prints its JSON object with the error.
#[track_caller]
fn expect_errors(gone: &Path, copy: &Path) {
    let no_name = gone.join("file");
    for (name, words) in [
        ("answer", vec!["copy", "-T"]),
        ("answer", vec!["sync"]),
        ("answer", vec!["move"]),
        ("answer", vec!["receive", "--from"]),
        ("answer", vec!["fetch", "--cacert"]),
        ("verify", vec!["verify", "--manifest"]),
        ("manifest", vec!["manifest", "-o"]),
    ] {
        let ran = run(thalweg().args(&words).arg(&no_name).arg(copy).arg("--json"));
        assert!([1, 2].contains(&ran.code()), "{words:?}: {}", ran.said());
        let answer = ran.json();
        expect(name, &answer);
        assert!(answer["error"].is_string(), "{words:?}: {answer}");
    }
    let sent = run(thalweg().args(["send", "--json", "--to", "nobody"]).arg(gone)).expect(1);
    expect("answer", &sent.json());
    let fetched = run(thalweg().args(["fetch", "--json", "nonsense", "-"])).expect(2);
    let piped = shell(copy.parent().unwrap(), "$T pipe --json <&-").expect(1);
    for ran in [fetched, piped] {
        expect("answer", &ran.json_on_stderr());
        assert!(ran.stdout.is_empty(), "standard output is for the data");
    }
}

#[test]
fn a_copy_to_another_machine_that_fails_prints_one_object() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    let (folder, file) = (scratch.folder("folder"), scratch.join("file"));
    fs::write(&file, "text").unwrap();
    let expect_object = |command: &mut Command| {
        let ran = run(command);
        assert_ne!(ran.code(), 0, "{}", ran.said());
        let object = ran.all_json();
        expect("answer", &object);
        assert!(object["error"].is_string(), "{object}");
    };
    let (there, below_file) = (machine.at(scratch.join("copy")), machine.at(file.join("copy")));
    expect_object(thalweg().args(["copy", "--json", "-e", "false"]).arg(&file).arg("h:x"));
    // A directory without -r.
    expect_object(machine.run("copy", &["--json"]).arg(&folder).arg(&there));
    // The other machine reports these errors.
    expect_object(machine.run("copy", &["--json"]).arg(&file).arg(&below_file));
    expect_object(machine.run("sync", &["--json"]).arg(&folder).arg(&below_file));
}

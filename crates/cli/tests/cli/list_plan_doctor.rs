//! The commands that print information: list, plan, doctor, completions, man, and the usage.

use crate::support;

use serde_json::Value;
use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
use thalweg_core::MECHANISMS;

use support::Scratch;

fn names(list: &Value, key: &str) -> Vec<String> {
    let list = list.as_array().expect("a list");
    list.iter().map(|item| item[key].as_str().expect("a name").to_owned()).collect()
}

fn known() -> Vec<String> {
    MECHANISMS.iter().map(|m| m.info().name.to_owned()).collect()
}

#[test]
fn list_is_the_registry() {
    let scratch = Scratch::new();
    let text = scratch.run(&["list", "-v"]).ended(0).text();
    let json = scratch.run(&["list", "--json"]).ended(0).json();
    assert_eq!(names(&json["mechanisms"], "name"), known());
    assert_eq!(json["schema"], 1);
    for mechanism in MECHANISMS {
        let info = mechanism.info();
        assert!(text.contains(&format!("{}: {}", info.name, info.summary)), "{text}");
        let listed = json["mechanisms"].as_array().unwrap().iter();
        let listed = listed.clone().find(|m| m["name"] == info.name).unwrap();
        assert_eq!(listed["pairs"].as_array().unwrap().len(), info.pairs.len());
        assert_eq!(listed["knobs"].as_array().unwrap().len(), info.knobs.len());
    }
}

#[test]
fn plan_has_a_verdict_for_every_mechanism_and_writes_nothing() {
    let scratch = Scratch::new();
    scratch.file("from", support::bytes(10_000));
    std::fs::create_dir(scratch.path("to")).unwrap();
    let before = scratch.names();
    for command in ["plan", "explain"] {
        let text = scratch.run(&[command, "from", "to/new"]).ended(0).text();
        assert!(text.contains("not measured"), "{text}");
    }
    let json = scratch.run(&["plan", "--json", "from", "to/new"]).ended(0).json();
    let mut judged = names(&json["verdicts"], "mechanism");
    let mut known = known();
    judged.sort();
    known.sort();
    assert_eq!(judged, known);
    assert_eq!(json["verdicts"][0]["verdict"], "chosen");
    assert_eq!(
        (&json["source"]["bytes"], &json["source"]["kind"]),
        (&10_000.into(), &"file".into())
    );
    assert_eq!((&json["probed"], &json["profile"]["state"]), (&true.into(), &"absent".into()));
    assert_eq!(scratch.names(), before);
    assert_eq!(std::fs::read_dir(scratch.path("to")).unwrap().count(), 0);
}

#[test]
fn plan_knows_streams_devices_and_what_is_not_there() {
    let scratch = Scratch::new();
    scratch.file("from", "x");
    let kinds = |args: &[&str]| {
        let json = scratch.feed(&[&["plan", "--json"], args].concat(), b"").ended(0).json();
        let kind = |end: &str| json[end]["kind"].as_str().unwrap().to_owned();
        (kind("source"), kind("sink"))
    };
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(kinds(&["-", "-"]), pair("pipe", "pipe"));
    assert_eq!(kinds(&["/dev/zero", "/dev/null"]), pair("device", "null"));
    assert_eq!(kinds(&["from", "."]), pair("file", "file"));
    rustix::fs::mkfifoat(rustix::fs::CWD, scratch.path("fifo"), 0o600.into()).unwrap();
    assert_eq!(kinds(&["fifo", "fifo"]), pair("pipe", "pipe"));
    let gone = scratch.run(&["plan", "gone", "to"]).ended(1);
    assert!(
        gone.err.contains("cannot open 'gone': no such file or directory (open: ENOENT)"),
        "{}",
        gone.err
    );
    let nowhere = scratch.run(&["plan", "from", "no/such/folder"]).ended(1);
    assert!(nowhere.err.contains("no/such"), "{}", nowhere.err);
}

#[test]
fn zero_copy_is_planned_only_on_request() {
    let scratch = Scratch::new();
    scratch.file("from", support::bytes(10_000));
    let first = |line: &str| {
        let ran = scratch.shell(&format!("$T plan --json {line} - < from | cat"));
        ran.ended(0).json()["verdicts"][0].clone()
    };
    let gives = |verdict: &Value| {
        let name = verdict["mechanism"].as_str().unwrap();
        let info = thalweg_core::mechanisms::by_name(name).unwrap().info();
        info.pair(thalweg_core::Kind::File, thalweg_core::Kind::Pipe).unwrap().gives
    };
    assert!(gives(&first("-")).stable);
    assert!(!gives(&first("--zero-copy -")).stable);
}

#[test]
fn a_plan_that_is_not_possible_says_why_and_exits_4() {
    let scratch = Scratch::new();
    scratch.file("from", "x");
    let harness = MECHANISMS.iter().map(|m| m.info());
    let harness = harness.clone().find(|i| i.role == thalweg_core::Role::Harness).unwrap().name;
    let ran = scratch.run(&["plan", "--method", harness, "from", "to"]).ended(4);
    assert!(ran.text().contains("impossible"), "{}", ran.text());
}

#[test]
fn doctor_tries_everything_and_leaves_nothing_behind() {
    let scratch = Scratch::new();
    let text = scratch.run(&["doctor", "-v"]).ended(0).text();
    assert!(text.contains("kernel") && text.contains("pipe-max-size"), "{text}");
    let json = scratch.run(&["doctor", "--json", "--at", "."]).ended(0).json();
    for mechanism in json["mechanisms"].as_array().unwrap() {
        for works in mechanism["works"].as_array().unwrap() {
            assert_eq!(works["broken_promise"], false, "{}: {works}", mechanism["name"]);
        }
    }
    assert!(json["machine"]["kernel"].is_string());
    assert!(!json["places"].as_array().unwrap().is_empty());
    assert_eq!(scratch.names(), [""; 0]);
    scratch.run(&["doctor", "--at", "nowhere"]).ended(2);
}

#[test]
fn names_that_are_no_text_are_shown_in_json_all_the_same() {
    let scratch = Scratch::new();
    let folder = scratch.path(OsStr::from_bytes(b"caf\xe9"));
    std::fs::create_dir(&folder).unwrap();
    let json = |command: &mut std::process::Command| -> Value {
        let ran = command.output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        serde_json::from_slice(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {said}"))
    };
    let doctor = json(scratch.thalweg(["doctor", "--json", "--at"]).arg(&folder));
    assert!(doctor["places"][0]["path"].as_str().unwrap().ends_with("caf\u{fffd}"), "{doctor}");
    std::fs::write(folder.join("900.toml"), "id =").unwrap();
    let studies = json(scratch.thalweg(["study", "--json"]).env("THALWEG_STUDIES", &folder));
    let path = studies["studies"][0]["path"].as_str().unwrap();
    assert!(path.ends_with("caf\u{fffd}/900.toml"), "{studies}");
    std::fs::remove_dir_all(folder).unwrap();
}

/// The sizes at which the effect of a threshold is shown: 3, 24 and 256 KiB, 8 and 64 MiB.
const SHOWN: [u64; 5] = [3 << 10, 24 << 10, 256 << 10, 8 << 20, 64 << 20];

#[test]
#[ignore = "measures for real, for long: the audit suite `whole`"]
fn doctor_advises_thresholds_only_with_their_effect_at_every_size() {
    let scratch = Scratch::new();
    let text = scratch.run(&["doctor", "-v"]).ended(0).text();
    let ran = scratch.run(&["doctor", "--memcpy", "--json"]);
    if ran.code == 4 {
        assert!(text.contains("thresholds unknown"), "{text}");
        support::skip(
            "doctor_advises_thresholds_only_with_their_effect_at_every_size",
            ran.err.trim(),
        );
        return;
    }
    assert!(text.contains("_threshold") && text.contains("thalweg doctor --memcpy"), "{text}");
    let json = ran.ended(0).json();
    let memcpy = &json["memcpy"];
    let thresholds = memcpy["thresholds"].as_array().expect("a list");
    assert!(thresholds.iter().any(|one| one["bytes"].as_u64() > Some(0)), "{memcpy}");
    let measured = &memcpy["measured"];
    let effects = |one: &Value| -> Vec<Value> { one["effects"].as_array().unwrap().clone() };
    for tried in ["tried", "confirmed"].iter().flat_map(|key| measured[key].as_array().unwrap()) {
        let sizes: Vec<u64> =
            effects(tried).iter().map(|effect| effect["size"].as_u64().unwrap()).collect();
        assert_eq!(sizes, SHOWN, "{tried}");
        let slower = effects(tried).iter().any(|effect| effect["verdict"] == "slower");
        assert!(!(slower && tried["harmless"] == true), "{tried}");
    }
    let advice = &measured["advice"];
    assert_eq!(advice.is_null(), measured["no_advice"].is_string(), "{measured}");
    if !advice.is_null() {
        assert!(advice["line"].as_str().unwrap().starts_with("GLIBC_TUNABLES=glibc.cpu."));
        let words: Vec<Value> = effects(advice).iter().map(|e| e["verdict"].clone()).collect();
        assert!(words.len() == SHOWN.len() && !words.contains(&"slower".into()), "{advice}");
        assert!(words.contains(&"faster".into()), "it helps somewhere: {advice}");
    }
    assert_eq!(scratch.names(), [""; 0]);
}

#[test]
fn a_threshold_set_from_outside_is_the_one_that_doctor_shows() {
    let scratch = Scratch::new();
    let shown = |value: Option<&str>| {
        let mut command = scratch.thalweg(["doctor", "--json"]);
        command.env_remove("GLIBC_TUNABLES");
        if let Some(value) = value {
            command.env("GLIBC_TUNABLES", format!("glibc.cpu.x86_non_temporal_threshold={value}"));
        }
        let json: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
        let list = json["memcpy"]["thresholds"].as_array().cloned().unwrap_or_default();
        let one = list.iter().find(|one| {
            one["name"].as_str().is_some_and(|name| name.ends_with("non_temporal_threshold"))
        });
        one.map(|one| one["bytes"].as_u64().unwrap())
    };
    if shown(None).is_none() {
        support::skip(
            "a_threshold_set_from_outside_is_the_one_that_doctor_shows",
            "this libc has no such threshold",
        );
        return;
    }
    assert_eq!(shown(Some("1234567")), Some(1_234_567));
    assert_ne!(shown(None), Some(1_234_567));
}

#[test]
fn a_stale_or_broken_profile_is_named_and_not_used() {
    let scratch = Scratch::new();
    scratch.file("from", "x");
    let mut profile = thalweg_core::Profile::new();
    profile.machine.set("kernel", "2.6.17");
    profile.save(&scratch.path("old.json")).unwrap();
    scratch.file("broken.json", "{");
    let plan = |profile: &str| {
        let mut command = scratch.thalweg(["plan", "from", "to"]);
        let output = command.env("THALWEG_PROFILE", scratch.path(profile)).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8(output.stdout).unwrap()
    };
    let old = plan("old.json");
    assert!(old.contains("stale") && old.contains("2.6.17"), "{old}");
    assert!(plan("broken.json").contains("not used"));
}

#[test]
fn completions_and_manual_pages_come_out_for_every_command() {
    let scratch = Scratch::new();
    for shell in ["bash", "zsh", "fish", "elvish"] {
        assert!(scratch.run(&["completions", shell]).ended(0).text().contains("thalweg"));
    }
    assert!(scratch.run(&["man", "typo"]).ended(2).err.contains("no such command or directory"));
    scratch.run(&["man", "deep/man1"]).ended(0);
    let page = String::from_utf8(scratch.read("deep/man1/thalweg.1")).unwrap();
    for mechanism in MECHANISMS {
        let name = mechanism.info().name.replace('-', "\\-");
        assert!(page.contains(&format!("\\fB{name}\\fR")), "{name} is missing");
    }
    for command in [
        "copy",
        "pipe",
        "send",
        "receive",
        "verify",
        "manifest",
        "plan",
        "tune",
        "doctor",
        "report",
        "list",
        "compare",
        "trial",
        "study",
        "completions",
        "man",
    ] {
        let page = scratch.read(&format!("deep/man1/thalweg-{command}.1"));
        assert!(String::from_utf8_lossy(&page).contains(".SH SYNOPSIS"), "{command}");
    }
    let page = String::from_utf8(scratch.read("deep/man1/thalweg-send.1")).unwrap();
    assert!(page.contains("\\fBTHALWEG_BULK_METHOD\\fR\nsets \\-\\-method"), "{page}");
}

#[test]
fn every_command_shows_examples_and_nonsense_is_a_usage_error() {
    let scratch = Scratch::new();
    for command in [
        "copy",
        "pipe",
        "send",
        "receive",
        "verify",
        "manifest",
        "plan",
        "tune",
        "doctor",
        "report",
        "list",
        "compare",
        "trial",
        "study",
        "completions",
        "man",
    ] {
        let help = scratch.run(&[command, "--help"]).ended(0).text();
        assert!(help.contains("Examples:"), "{command}: {help}");
    }
    assert!(scratch.run(&["--version"]).ended(0).text().starts_with("thalweg "));
    scratch.run(&[]).ended(2);
    scratch.run(&["dance"]).ended(2);
    scratch.run(&["pipe", "--limit", "fast"]).ended(2);
    let unknown = scratch.run(&["pipe", "--method", "teleport"]).ended(2);
    for name in known() {
        assert!(unknown.err.contains(&name), "{}", unknown.err);
    }
}

#[test]
fn plan_doctor_and_list_answer_in_a_line_before_the_evidence() {
    let scratch = Scratch::new();
    scratch.file("from", "x");
    let first = |args: &[&str]| {
        let text = scratch.run(args).ended(0).text();
        (text.lines().next().unwrap_or_default().to_owned(), text)
    };
    let (answer, text) = first(&["plan", "from", "to"]);
    assert!(!answer.is_empty() && !text.contains("no: "), "{text}");
    let (_, all) = first(&["plan", "-v", "from", "to"]);
    assert!(text.contains("hint: -v ") && all.contains("no: "), "{text}{all}");
    // For a small file, the output notes that thalweg copies it without a plan.
    let note = "one read and one write";
    let (_, large) = first(&["plan", "--size", "1G", "from", "to"]);
    assert!(text.contains(note) && !large.contains(note), "{text}{large}");
    let (answer, _) = first(&["plan", "memory:", "memory:"]);
    assert!(answer.contains("memcpy of libc") || answer.contains("kernel"), "{answer}");
    let (answer, _) = first(&["doctor"]);
    assert!(answer.contains("methods work here"), "{answer}");
    let (answer, _) = first(&["list"]);
    assert!(answer.contains("methods, safest first"), "{answer}");
}

#[test]
fn the_manual_is_shown_the_variables_are_in_the_help_and_json_may_come_first() {
    let scratch = Scratch::new();
    assert!(scratch.run(&["man"]).ended(0).text().contains("thalweg"));
    let copy = scratch.run(&["man", "copy"]).ended(0).text();
    assert!(
        copy.contains("resume") && !scratch.names().iter().any(|name| name == "copy"),
        "{copy}"
    );
    let help = scratch.run(&["copy", "--help"]).ended(0).text();
    assert!(help.contains("THALWEG_LIMIT") && help.contains("sets --limit"), "{help}");
    let help = scratch.run(&["--help"]).ended(0).text();
    for name in ["NO_COLOR", "THALWEG_PROFILE", "XDG_STATE_HOME"] {
        assert!(help.contains(name), "{name}: {help}");
    }
    assert!(scratch.run(&["--json", "list"]).ended(0).json()["mechanisms"].is_array());
    scratch.run(&["--json", "completions", "bash"]).ended(2);
}

#[test]
fn sizes_rates_and_times_are_read_as_people_write_them() {
    let scratch = Scratch::new();
    scratch.file("from", "x");
    for size in ["1G", "1GiB", "1.5M", "100k", "64 KiB"] {
        scratch.run(&["plan", "--size", size, "from", "to"]).ended(0);
    }
    for limit in ["10MB/s", "1.5 GiB/s", "500k"] {
        scratch.feed(&["pipe", "--limit", limit], b"x").ended(0);
    }
    let refused = scratch.run(&["plan", "--size", "50%", "from", "to"]).ended(2);
    assert!(refused.err.contains("is not a size (examples: "), "{}", refused.err);
}

#[test]
fn a_reader_that_leaves_is_no_reason_to_panic() {
    let scratch = Scratch::new();
    for command in ["--help", "list", "doctor", "completions bash", "copy --help"] {
        let line = format!("$T {command} | head -c 1 > /dev/null; echo ${{PIPESTATUS[0]}}");
        let code = scratch.shell(&line).ended(0).text();
        assert!(["0", "141"].contains(&code.trim()), "{command}: {code}");
    }
    let full = scratch.shell("$T list > /dev/full").ended(1);
    assert!(full.err.contains("ENOSPC"), "{}", full.err);
}

/// THALWEG_CPU accepts features that this CPU does not have.
#[test]
#[cfg(target_arch = "x86_64")]
fn hidden_features_of_the_processor_are_said_and_make_it_another_machine() {
    let scratch = Scratch::new();
    let cpu = |hidden: &str| {
        let ran = scratch.shell(&format!("THALWEG_CPU={hidden} $T doctor --json"));
        ran.ended(0).json()["machine"]["cpu"].to_string()
    };
    let (whole, hidden) = (cpu(""), cpu("-avx2,-avx512f"));
    assert!(!whole.contains("without"), "{whole}");
    assert!(hidden.contains(" without avx2, avx512f"), "{hidden}");
    let text = scratch.shell("THALWEG_CPU=-avx2 $T doctor -v").ended(0).text();
    assert!(text.contains("hidden by THALWEG_CPU"), "{text}");
}

#[test]
fn a_feature_that_cannot_be_hidden_is_refused_with_those_that_can() {
    let scratch = Scratch::new();
    for wrong in ["-avx9", "avx2", "-avx2,", "none"] {
        for command in ["list", "doctor"] {
            let ran = scratch.shell(&format!("THALWEG_CPU={wrong} $T {command}")).ended(2);
            assert!(ran.err.contains("THALWEG_CPU: \"") && ran.err.contains("-avx512f,-avx2"));
            assert_eq!(ran.out.len(), 0);
        }
    }
}

#[test]
fn an_address_after_tcp_or_unix_is_a_socket_unless_a_file_has_that_name() {
    let scratch = Scratch::new();
    scratch.file("from", support::bytes(10_000));
    let ends = |sink: &str| scratch.run(&["plan", "--no-profile", "from", sink]).ended(0).text();
    for (with_address, word) in
        [("tcp:localhost:80", "tcp:"), ("tcp:[::1]:80", "tcp:"), ("unix:/run/x", "unix:")]
    {
        assert_eq!(ends(with_address).replace(with_address, word), ends(word));
    }
    scratch.file("tcp:x", "");
    assert!(ends("tcp:x").contains("tcp:x (file"), "{}", ends("tcp:x"));
}

#[test]
fn a_url_of_a_directory_needs_a_destination_or_r() {
    let scratch = Scratch::new();
    for url in ["http://127.0.0.1:1/dir/", "http://127.0.0.1:1"] {
        let ran = scratch.run(&["fetch", url]);
        assert!(ran.code == 2 && ran.err.contains("with -r"), "{}", ran.err);
    }
}

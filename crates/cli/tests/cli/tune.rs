//! `thalweg tune`: plans use its measurements, and an unfinished run changes nothing.

use crate::support;

use serde_json::Value;
use std::{
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};
use thalweg_core::{
    Profile, Tuning,
    profile::{Cell, Load, Ratio, SinkState},
};

use support::{Ran, Scratch, executable, skip};

fn tune(scratch: &Scratch, args: &[&str]) -> Command {
    let mut command = scratch.thalweg([&["tune"], args].concat());
    command.env("THALWEG_PROFILE", scratch.path("profile.json"));
    command
}

fn ran(mut command: Command) -> (i32, String, String) {
    let output = command.output().expect("the command starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let err = text(&output.stderr);
    assert!(!err.contains("panicked"), "{err}");
    (output.status.code().unwrap_or(-1), text(&output.stdout), err)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// Returns the output of a quick measurement with this budget. Repeats it with larger budgets, which a busy machine may
/// need.
fn tuned(command: impl Fn() -> Command, seconds: u32, is_enough: impl Fn(&str) -> bool) -> String {
    let mut last = String::new();
    for factor in [1, 4, 16, 64] {
        let mut command = command();
        // Other tests run at the same time, and must not mark the machine as busy.
        command.args(["--assume-idle", "--quick", "--budget", &format!("{}s", seconds * factor)]);
        let (code, text, err) = ran(command);
        if code == 0 && is_enough(&text) {
            return text;
        }
        last = format!("{code}: {text}{err}");
    }
    panic!("not enough in {} seconds: {last}", seconds * 64);
}

const FILES: [&str; 3] = ["--json", "--pair", "file:file@files"];

/// Returns `true` if this list in the JSON output is not empty.
fn has_some(text: &str, list: &str) -> bool {
    json(text)[list].as_array().is_some_and(|list| !list.is_empty())
}

fn with_files() -> Scratch {
    let scratch = Scratch::new();
    scratch.file("files/from", support::bytes(20_000));
    scratch
}

#[test]
fn what_cannot_be_kept_is_shown_all_the_same() {
    let scratch = with_files();
    scratch.file("taken", "a file, where a folder would have to be");
    let measured = |budget| {
        let args = ["--assume-idle", "--quick", "--budget", budget];
        let mut command = tune(&scratch, &[&args[..], &FILES[..]].concat());
        command.env("THALWEG_PROFILE", scratch.path("taken/profile.json"));
        ran(command)
    };
    // On a busy machine, a short budget may be too short for any measurement.
    let mut tries = ["2s", "8s", "32s", "128s"].into_iter().map(measured);
    let (code, text, err) = tries.find(|(_, _, err)| err.contains("taken")).expect("a measurement");
    assert_eq!(code, 1, "{err}");
    let found = json(&text);
    assert!(!found["rows"].as_array().unwrap().is_empty() && found["profile"].is_null(), "{text}");
}

#[test]
fn options_set_in_the_environment_do_not_stop_the_sessions() {
    let scratch = Scratch::new();
    let in_environment = |mut command: Command, text: &str| {
        command.env("THALWEG_JSON", text).env("THALWEG_COLOR", "never");
        ran(command)
    };
    for text in ["1", "0"] {
        let (code, _, err) = in_environment(scratch.thalweg(["helper", "survey"]), text);
        assert!(code == 1 && err.contains("invalid job: EOF"), "it looks for its job: {err}");
        let (code, _, err) = in_environment(tune(&scratch, &["--emit", "c"]), text);
        assert!(code == 4 && err.contains("run `thalweg tune`"), "{err}");
    }
}

#[test]
fn what_was_measured_is_cited_by_the_plan_and_can_be_checked() {
    let scratch = with_files();
    // On a busy machine, the budget may be used up before the measurement with idle cores.
    let is_enough = |text: &str| {
        let cells = &json(text)["cells"];
        let idle = cells.as_array().is_some_and(|all| all.iter().any(|c| c["load"] == "idle"));
        idle && has_some(text, "rows")
    };
    let found = json(&tuned(|| tune(&scratch, &FILES), 2, is_enough));
    assert_eq!(found["schema"], 1);
    let advice = found["advice"].as_array().unwrap();
    let of: Vec<&str> = advice.iter().map(|line| line["of"].as_str().unwrap()).collect();
    assert_eq!(of, ["files", "pipes", "sockets", "memory", "processes"]);
    assert!(!advice[0]["bands"].as_array().unwrap().is_empty(), "{}", advice[0]);
    assert!(advice[1]["text"].as_str().unwrap().contains("tune --pair file:pipe"), "{}", advice[1]);
    assert_eq!(found["other_work"]["left_out"], 0, "{}", found["other_work"]);
    assert_eq!(std::fs::read_dir(scratch.path("files")).unwrap().count(), 1, "nothing is left");

    let mut plan = scratch.thalweg(["plan", "--json", "files/from", "files/to"]);
    plan.env("THALWEG_PROFILE", scratch.path("profile.json"));
    let (code, text, _) = ran(plan);
    assert_eq!(code, 0);
    let plan = json(&text);
    let chosen = &plan["verdicts"][0];
    assert_eq!(plan["profile"]["state"], "current");
    let evidence = &chosen["evidence"];
    assert_eq!((&chosen["verdict"], &evidence["load"]), (&"chosen".into(), &"idle".into()));
    assert!(evidence["sessions"].as_u64().unwrap() >= 1, "{chosen}");
    assert!(evidence["wall"]["ratio"].as_f64().unwrap() > 0.0, "{chosen}");
    let cited = chosen["cited"].as_str().unwrap();
    assert!(cited.starts_with("measured 20") && cited.ends_with(", idle"), "{cited}");
    let mut plan = scratch.thalweg(["plan", "--load", "loaded", "files/from", "files/to"]);
    plan.env("THALWEG_PROFILE", scratch.path("profile.json")).env("COLUMNS", "400");
    let (_, text, _) = ran(plan);
    // The text may lack the ratio: other tests run at the same time, so the budget may allow too few rounds.
    assert!(text.contains("reason: fastest measured; "), "{text}");

    let before = scratch.read("profile.json");
    let check = || tune(&scratch, &[&["--check"], &FILES[..]].concat());
    let scored = |text: &str| {
        let regret = &json(text)["regret"][0];
        let means = [&regret["planner"]["mean"], &regret["always"]["read-write"]["mean"]];
        means.iter().all(|mean| mean.is_number()) && regret["floor"]["worst"].is_number()
    };
    let checked = json(&tuned(check, 5, scored));
    let regret = &checked["regret"][0];
    for point in regret["points"].as_array().unwrap() {
        assert!(!point["size"].as_u64().unwrap().is_power_of_two(), "seen before: {point}");
    }
    assert_eq!(scratch.read("profile.json"), before, "a check changes nothing");
}

#[test]
#[ignore = "measures for real, for long: the audit suite `whole`"]
fn ways_between_processes_are_measured_cited_and_checked() {
    let scratch = Scratch::new();
    let pair = ["--pair", "loan:process"];
    let states = ["resident", "fresh"];
    // The plans below need measurements of large sizes, by at least two methods for each state of the sink.
    let compared = |text: &str| {
        let found = json(text);
        let large = |cell: &&Value| cell["size"].as_u64() >= Some(64 << 10);
        let large: Vec<&Value> = found["cells"].as_array().unwrap().iter().filter(large).collect();
        states.iter().all(|state| large.iter().filter(|c| c["sink_state"] == *state).count() > 1)
    };
    let measure = |what: &str| tune(&scratch, &[what, pair[0], pair[1]]);
    let found = json(&tuned(|| measure("--json"), 3, compared));
    for state in states {
        for cell in found["cells"].as_array().unwrap() {
            let ends = (&cell["source"], &cell["sink"], &cell["load"]);
            assert_eq!(ends, (&"process:loan".into(), &"process".into(), &"idle".into()));
        }
        let rows = found["rows"].as_array().unwrap().iter();
        assert!(rows.clone().any(|row| row["sink_state"] == state), "{found}");
        assert!(rows.clone().all(|row| row["pair"] == "loan:process"), "{found}");
    }

    let planned = |sink: &str| {
        let mut plan = scratch.thalweg(["plan", "--json", "--size", "64K", "loan:", sink]);
        plan.env("THALWEG_PROFILE", scratch.path("profile.json"));
        let (code, text, err) = ran(plan);
        assert_eq!(code, 0, "{text}{err}");
        json(&text)["verdicts"].as_array().unwrap().clone()
    };
    for (sink, words) in [("process:", "into memory used before"), ("fresh:", "into new memory")] {
        let verdicts = planned(sink);
        let best = &verdicts[0];
        assert_eq!(
            (&best["verdict"], &best["why"]),
            (&"chosen".into(), &"fastest measured".into())
        );
        let cited = best["cited"].as_str().unwrap();
        assert!(cited.starts_with("measured 20") && cited.ends_with(words), "{cited}");
    }
    let verdicts = planned("huge:");
    assert!(verdicts[0]["why"].as_str().unwrap().contains("not measured"), "{verdicts:?}");
    assert!(verdicts.iter().all(|verdict| verdict["evidence"].is_null()), "{verdicts:?}");

    let words = ["loan:process, idle, into memory used before", "always ring", "hindsight"];
    let has_all = |text: &str| words.iter().all(|words| text.contains(words));
    tuned(|| measure("--check"), 3, has_all);
}

#[test]
#[ignore = "measures for real, for long: the audit suite `whole`"]
fn kernels_are_checked_on_distributions_of_sizes_that_tuning_did_not_use() {
    let scratch = Scratch::new();
    let measure = |more: &[&str]| tune(&scratch, &[&["--pair", "memory:memory"], more].concat());
    let found = json(&tuned(|| measure(&["--json"]), 6, |text| has_some(text, "cells")));
    let cells = found["cells"].as_array().unwrap();
    for source in ["memory", "fill"] {
        assert!(cells.iter().any(|cell| cell["source"] == source), "{source} is missing: {found}");
    }
    let checked = tuned(|| measure(&["--check", "--json"]), 6, |text| has_some(text, "held_out"));
    let checked = json(&checked);
    let held = checked["held_out"].as_array().unwrap();
    for name in ["memcpy-fleet", "memcpy-0", "memcpy-1", "memcpy-3", "memcpy-8"] {
        let one = held.iter().find(|one| one["distribution"] == name);
        let one = one.unwrap_or_else(|| panic!("{name} is missing: {checked}"));
        assert!(one["regret"].is_number() && one["floor"].is_number(), "{one}");
        assert!(one["always"]["libc"].is_number() && one["always"]["tuned"].is_number(), "{one}");
        assert_eq!(one["chosen"]["name"], "tuned");
    }
}

#[test]
fn a_pair_that_is_none_is_a_usage_error_that_says_what_there_is() {
    let scratch = with_files();
    for (pair, reason) in [
        ("teleport:file", "unknown endpoint 'teleport'"),
        ("file", "not a pair of endpoints"),
        ("file:file@nowhere", "nowhere: not a directory"),
        ("pipe:tcp@files", "can have a directory"),
        ("process:pipe", "only between processes"),
    ] {
        let (code, _, err) = ran(tune(&scratch, &["--quick", "--pair", pair]));
        assert!(code == 2 && err.contains(reason), "{pair}: {code} {err}");
    }
    let (code, _, err) = ran(tune(&scratch, &["--budget", "soon"]));
    assert!(code == 2 && err.contains("'soon' is not a time"), "{err}");
    let (code, _, err) = ran(tune(&scratch, &["--check"]));
    assert!(code == 4 && err.contains("thalweg tune"), "{code} {err}");
    assert!(!scratch.path("profile.json").exists());
}

#[test]
fn an_interrupt_leaves_the_old_profile_and_no_files() {
    let scratch = with_files();
    let mut old = Profile::new();
    old.merge(vec![cell(("read-write", None), 4096, 1.0)]);
    old.save(&scratch.path("profile.json")).unwrap();
    let before = scratch.read("profile.json");
    let mut command = tune(&scratch, &["--pair", "file:file@files", "--budget", "10m"]);
    // The command gets its own process group, as from a shell, so that the interrupt also reaches its sessions.
    command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the command starts");
    let busy = || std::fs::read_dir(scratch.path("files")).unwrap().count() > 1;
    let began = Instant::now();
    while !busy() && began.elapsed() < Duration::from_secs(300) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let group = rustix::process::Pid::from_raw(child.id().cast_signed()).expect("a process");
    rustix::process::kill_process_group(group, rustix::process::Signal::INT).unwrap();
    let ran = Ran::of_child(child).ended(130);
    assert!(ran.err.contains("interrupted; the profile is unchanged"), "{}", ran.err);
    assert_eq!(scratch.read("profile.json"), before);
    assert_eq!(std::fs::read_dir(scratch.path("files")).unwrap().count(), 1);
}

#[test]
#[ignore = "measures for real, for long: the audit suite `whole`"]
fn an_ordinary_user_can_measure() {
    if !rustix::process::geteuid().is_root() {
        // Without root, the other tests of this file already run as an ordinary user, so this one is not needed.
        return;
    }
    let scratch = with_files();
    std::fs::set_permissions(scratch.path(""), std::fs::Permissions::from_mode(0o777)).unwrap();
    // thalweg saves no profile in a directory that every user may write, so the profile is in `files`.
    std::os::unix::fs::chown(scratch.path("files"), Some(65534), Some(65534)).unwrap();
    // Copies the program, because only root may have access to its directory.
    let binary = scratch.path("thalweg");
    executable(Path::new(env!("CARGO_BIN_EXE_thalweg")), &binary);
    let command = || {
        let mut command = Command::new(&binary);
        command.args(["tune", "--pair", "file:pipe@files", "--json"]).uid(65534).gid(65534);
        command.current_dir(scratch.path("")).env("THALWEG_PROFILE", scratch.path("files/p.json"));
        command
    };
    tuned(command, 2, |text| has_some(text, "cells"));
}

fn cell(way: (&str, Option<(&str, u64)>), size: u64, ratio: f64) -> Cell {
    let ratio = Ratio { ratio, lo: ratio * 0.99, hi: ratio * 1.01 };
    Cell {
        source: "file:ext4".into(),
        sink: "pipe".into(),
        options: ["rw,relatime".into(), String::new()],
        mechanism: way.0.into(),
        tuning: way.1.map_or_else(Tuning::default, |(knob, value)| Tuning::of(knob, value)),
        size,
        load: Load::Idle,
        sink_state: SinkState::Fresh,
        wall: ratio,
        cpu: ratio,
        noise: 0.03,
        ns_per_byte: 0.5,
        memory: Some(0),
        sessions: 6,
        rounds: 60,
        at: "2026-11-21T00:00:00Z".into(),
        provisional: false,
    }
}

/// Saves a profile with measurements from files to pipes, and of copy kernels.
fn saved(scratch: &Scratch) {
    let mut profile = Profile::new();
    for (size, ratio) in [(4096, 2.0), (65536, 1.5), (1 << 20, 0.5)] {
        let mut kernel = cell(("simple", None), size, ratio / 2.0);
        let mut libc = cell(("libc", None), size, 1.0);
        for cell in [&mut kernel, &mut libc] {
            (cell.source, cell.sink) = ("memory".into(), "memory".into());
            cell.options = Default::default();
        }
        let fill = |cell: &Cell| Cell { source: "fill".into(), ..cell.clone() };
        profile.merge(vec![fill(&kernel), fill(&libc)]);
        profile.merge(vec![
            cell(("read-write", Some(("buffer", 65536))), size, 0.9),
            cell(("read-write", None), size, 1.0),
            cell(("mmap-write", None), size, ratio),
            cell(("splice", None), size, ratio / 2.0),
            kernel,
            libc,
        ]);
    }
    profile.save(&scratch.path("profile.json")).expect("a profile");
}

fn emitted(scratch: &Scratch, language: &str) -> String {
    let (code, text, err) = ran(tune(scratch, &["--emit", language]));
    assert_eq!(code, 0, "{err}");
    assert!(text.contains("are valid only for this machine"), "{text}");
    text
}

#[test]
fn constants_are_accepted_by_a_compiler_of_c_and_by_a_reader_of_json() {
    let scratch = Scratch::new();
    saved(&scratch);
    scratch.file("measured.h", emitted(&scratch, "c"));
    let mut command = Command::new("cc");
    command.args(["-std=c11", "-Wall", "-fsyntax-only", "-x", "c", "measured.h"]);
    match command.current_dir(scratch.path("")).output() {
        Ok(output) => {
            let err = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{err}");
        }
        Err(error) => {
            skip("constants_are_accepted_by_a_compiler_of_c", &format!("cc: {error}"));
        }
    }
    let json: Value = serde_json::from_str(&emitted(&scratch, "json")).unwrap();
    let tables = json["tables"].as_array().unwrap();
    let named = |name: &str| tables.iter().find(|table| table["name"] == name);
    let bands = &named("file_ext4_to_pipe").unwrap()["bands"];
    assert_eq!(bands[0]["way"], "read-write");
    assert_eq!(bands[0]["knobs"]["buffer"], 65536);
    assert!(bands[0]["upto"].as_u64().unwrap() > 65536);
    for name in ["file_ext4_to_pipe_zero_copy", "memory_to_memory", "fill_to_memory"] {
        assert!(named(name).is_some(), "{name}: {json}");
    }
}

#[test]
fn a_plan_calls_slower_only_beyond_the_interval_and_its_times_follow_its_order() {
    let scratch = Scratch::new();
    let plan = |lo: f64, hi: f64| {
        let between_pipes = |way: &str, ratio: Ratio, ns_per_byte: f64| {
            let mut cell = cell((way, None), 1 << 20, ratio.ratio);
            (cell.source, cell.options) = ("pipe".into(), Default::default());
            (cell.wall, cell.ns_per_byte) = (ratio, ns_per_byte);
            cell
        };
        let mut profile = Profile::new();
        // The times per byte contradict the ratios, because they come from different sessions. The plan must use the
        // ratios.
        profile.merge(vec![
            between_pipes("splice", Ratio { ratio: 0.5, lo: 0.48, hi: 0.52 }, 10.0),
            between_pipes("read-write", Ratio { ratio: 1.0, lo, hi }, 0.5),
        ]);
        profile.save(&scratch.path("profile.json")).expect("a profile");
        let mut plan = scratch.thalweg(["plan", "-v", "--size", "1M", "pipe:", "pipe:"]);
        plan.env("THALWEG_PROFILE", scratch.path("profile.json")).env("COLUMNS", "400");
        let (code, text, err) = ran(plan);
        assert_eq!(code, 0, "{err}");
        let row = |name| text.lines().find(|line| line.starts_with(name)).map(str::to_owned);
        let (other, all) = (row("read-write ").expect("a row"), text.clone());
        assert!(all.starts_with("splice") && all.contains(", about 10.5 ms"), "{all}");
        other
    };
    let sure = plan(1.0, 1.0);
    assert!(sure.contains("2.00x the chosen method's time") && sure.contains("21.0 ms"), "{sure}");
    let open = plan(0.4, 27.0);
    assert!(open.contains("tied with the chosen method") && !open.contains(" ms"), "{open}");
}

#[test]
fn the_plan_for_memory_names_the_measured_kernels() {
    let scratch = Scratch::new();
    saved(&scratch);
    let plan = |args: &[&str]| {
        let mut command = scratch.thalweg([&["plan"], args].concat());
        command.env("THALWEG_PROFILE", scratch.path("profile.json"));
        ran(command)
    };
    let (code, text, _) = plan(&["--json", "--size", "1M", "memory:", "memory:"]);
    let found = json(&text);
    assert_eq!((code, &found["bytes"]), (0, &(1 << 20).into()));
    let kernels = found["kernels"].as_array().unwrap();
    let fills = found["fills"].as_array().unwrap();
    assert_eq!(fills.last().unwrap()["kernel"], "simple");
    let last = kernels.last().unwrap();
    assert_eq!((&last["kernel"], &last["upto"]), (&"simple".into(), &(1 << 20).into()));
    let (_, text, _) = plan(&["-v", "--size", "1M", "memory:", "memory:"]);
    assert!(text.contains("simple (here)") && text.contains("6 sessions"), "{text}");
    assert!(text.contains("COPY KERNEL") && text.contains("FILL"), "{text}");
    for word in ["pipe:", "unix:", "tcp:"] {
        let (code, text, _) = plan(&["-v", "--size", "64K", "memory:", word]);
        assert!(code == 0 && text.contains("chosen"), "{text}");
    }
}

#[test]
fn a_plan_beyond_the_largest_measured_size_says_that_it_is_extrapolated() {
    let scratch = Scratch::new();
    if thalweg_sys::host::caches().is_empty() {
        let test = "a_plan_beyond_the_largest_measured_size_says_that_it_is_extrapolated";
        skip(test, "the sizes of the caches do not show here");
        return;
    }
    for (largest, beyond) in [(1 << 36, true), (64, false)] {
        let mut profile = Profile::new();
        for (kernel, ratio) in [("libc", 1.0), ("simple", 0.5)] {
            let mut cell = cell((kernel, None), largest, ratio);
            (cell.source, cell.sink) = ("memory".into(), "memory".into());
            cell.options = Default::default();
            profile.merge(vec![cell]);
        }
        profile.save(&scratch.path("profile.json")).expect("a profile");
        let mut plan = scratch.thalweg(["plan", "-v", "--size", "1T", "memory:", "memory:"]);
        plan.env("THALWEG_PROFILE", scratch.path("profile.json"));
        let (code, text, _) = ran(plan);
        assert_eq!(code, 0);
        let said = (text.contains("simple (here)"), text.contains("larger sizes extrapolated"));
        assert_eq!(said, (beyond, beyond), "{text}");
    }
}

#[test]
fn a_profile_of_another_kernel_is_stale_for_checks_and_constants() {
    let scratch = Scratch::new();
    saved(&scratch);
    let path = scratch.path("profile.json");
    let mut profile = Profile::load(Path::new(&path)).unwrap().unwrap();
    profile.machine.set("kernel", "2.6.17");
    profile.save(&path).unwrap();
    for args in [&["--check"][..], &["--emit", "c"]] {
        let (code, _, err) = ran(tune(&scratch, args));
        assert!(code == 4 && err.contains("stale") && err.contains("2.6.17"), "{code} {err}");
    }
}

#[test]
fn doctor_looks_whether_the_profile_still_holds() {
    let scratch = with_files();
    tuned(|| tune(&scratch, &FILES), 2, |text| has_some(text, "rows"));
    let mut doctor = scratch.thalweg(["doctor", "--json", "--at", "files"]);
    doctor.env("THALWEG_PROFILE", scratch.path("profile.json"));
    let (code, text, _) = ran(doctor);
    let looks = json(&text)["sentinel"].clone();
    assert_eq!(code, 0);
    for look in looks.as_array().unwrap() {
        assert!(look["drifted"].is_boolean() && look["is"]["ratio"].is_number(), "{look}");
    }
    let mut doctor = scratch.thalweg(["doctor", "--at", "files"]);
    doctor.env("THALWEG_PROFILE", scratch.path("profile.json"));
    assert!(ran(doctor).1.contains("drift: "));
}

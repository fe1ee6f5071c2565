//! `thalweg trial` on programs with known copies, and on programs that it does not support.

use crate::support;

use serde_json::Value;
use std::{path::PathBuf, process::Command};

use support::{
    Scratch, skip,
    trial::{reaches, row},
};

/// A program with known calls: COUNT calls of memcpy for SIZE bytes each, and one line of output.
const COPIES: &str = r#"
#include <stdio.h>
#include <string.h>
static unsigned char from[SIZE], to[SIZE];
int main(void) {
    for (int i = 0; i < COUNT; i++) {
        from[i % SIZE] = i;
        memcpy(to, from, SIZE);
        if (to[i % SIZE] != (unsigned char)i) return 1;
    }
    printf("%d copies in 0.5 s\n", COUNT);
    return 0;
}
"#;

/// Compiles a C program without inlining memcpy. If that fails, records a skip and returns `None`.
fn compiled(scratch: &Scratch, test: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let file = scratch.file("program.c", source);
    let program = scratch.path("program");
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-fno-builtin", "-o"]).arg(&program).arg(file).args(flags);
    match cc.output() {
        Ok(done) if done.status.success() => Some(program),
        Ok(done) => {
            skip(test, &format!("cc {}: {}", flags.join(" "), last(&done.stderr)));
            None
        }
        Err(error) => {
            skip(test, &format!("cc does not start: {error}"));
            None
        }
    }
}

fn last(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).lines().last().unwrap_or_default().to_owned()
}

#[test]
fn a_kernel_is_reached_and_its_calls_are_counted() {
    let test = "a_kernel_is_reached_and_its_calls_are_counted";
    let scratch = Scratch::new();
    let flags = ["-DSIZE=5000", "-DCOUNT=700"];
    let Some(_) = compiled(&scratch, test, COPIES, &flags).filter(|_| reaches(&scratch, test))
    else {
        return;
    };
    let options = ["trial", "-n", "2", "-k", "simple", "--tunables", "none"];
    let json =
        scratch.run(&[&options[..], &["--json", "--", "./program"]].concat()).ended(0).json();
    assert_eq!(json["reached"]["processes"], 1, "{json}");
    let bands = json["reached"]["bands"].as_array().unwrap();
    let band = bands.iter().find(|band| band["from"] == 4096).expect("a band of 4 to 16 KiB");
    // The dynamic loader makes no copies of this size through the preloaded object, so all of them are copies by the
    // program.
    assert_eq!((&band["memcpy"], &band["bytes"]), (&700.into(), &3_500_000.into()), "{band}");
    assert_eq!(row(&json, "libc")["kind"], "plain");
    let simple = row(&json, "simple");
    assert_eq!((&simple["copies"], &simple["fills"]), (&"simple".into(), &"simple".into()));
    for name in ["libc", "object-alone", "simple"] {
        assert!(row(&json, name)["runs"].as_u64().unwrap() >= 2, "{json}");
    }
    let shown = scratch.run(&[&options[..], &["--", "./program"]].concat()).ended(0);
    let text = shown.text();
    assert!(text.contains("4 KiB-16 KiB") && text.contains(" 700 "), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(shown.err.contains("3 variants, 2 rounds"), "{}", shown.err);
}

#[test]
fn a_program_without_calls_is_reported_as_out_of_reach() {
    let test = "a_program_without_calls_is_reported_as_out_of_reach";
    let scratch = Scratch::new();
    let Some(_) = compiled(&scratch, test, "int main(void) { return 0; }", &[]) else { return };
    if !reaches(&scratch, test) {
        return;
    }
    let args = ["trial", "-n", "2", "-k", "simple", "--tunables", "none", "--", "./program"];
    let text = scratch.run(&args).ended(0).text().replace("\n  ", " ");
    assert!(text.contains("in one separate run: 0 calls, 0 B, in 1 process"), "{text}");
    assert!(
        text.contains("No call goes through the preloaded object: no kernel can make a difference"),
        "{text}"
    );
    assert!(text.contains("Calls that no kernel replaces"), "{text}");
}

#[test]
fn a_deliberately_bad_kernel_is_seen_to_hurt() {
    let test = "a_deliberately_bad_kernel_is_seen_to_hurt";
    let scratch = Scratch::new();
    // The program does little except copy inside the caches, so with a loop that copies single bytes, it takes many
    // times as long.
    let flags = ["-DSIZE=65536", "-DCOUNT=20000"];
    let Some(_) = compiled(&scratch, test, COPIES, &flags).filter(|_| reaches(&scratch, test))
    else {
        return;
    };
    let args = ["trial", "-n", "5", "-k", "simple", "--tunables", "none", "-m", "cpu", "--json"];
    let json = scratch.run(&[&args[..], &["--", "./program"]].concat()).ended(0).json();
    let simple = row(&json, "simple");
    assert_eq!(simple["effect"], "hurts", "{simple}");
    assert!(simple["ratio"]["lo"].as_f64().unwrap() > 1.0, "{simple}");
}

#[test]
fn a_rate_that_is_printed_is_read_and_turned_the_right_way() {
    let test = "a_rate_that_is_printed_is_read_and_turned_the_right_way";
    let scratch = Scratch::new();
    if !reaches(&scratch, test) {
        return;
    }
    // The script prints a larger number if THALWEG_KERNEL is set.
    let script = "echo rate ${THALWEG_KERNEL:+2}0 per s";
    let args = ["trial", "-n", "4", "-k", "simple", "--tunables", "none", "--json"];
    for (better, effect) in [("higher", "helps"), ("lower", "hurts")] {
        let metric = ["-m", "regex:rate ([0-9]+)", "--better", better, "--"];
        let script = script.replace("+2}0", "+2}10");
        let all = [&args[..], &metric, &["sh", "-c", &script]].concat();
        let json = scratch.run(&all).ended(0).json();
        let simple = row(&json, "simple");
        assert_eq!(simple["effect"], effect, "{simple}");
        assert_eq!(simple["value"]["median"].as_f64(), Some(210.0), "{simple}");
        assert!((simple["ratio"]["ratio"].as_f64().unwrap() - 21.0).abs() < 1e-6, "{simple}");
    }
}

#[test]
fn a_static_program_is_explained_and_not_measured() {
    let test = "a_static_program_is_explained_and_not_measured";
    let scratch = Scratch::new();
    let flags = ["-DSIZE=64", "-DCOUNT=1", "-static"];
    let Some(_) = compiled(&scratch, test, COPIES, &flags) else { return };
    let ran = scratch.run(&["trial", "--", "./program"]).ended(4);
    assert!(ran.err.contains("program is linked statically: it starts without"), "{}", ran.err);
    assert!(ran.err.contains("nothing was measured") && ran.out.is_empty(), "{}", ran.err);
    // A script whose interpreter is a static program cannot load the object, either.
    let script = scratch.file("script", format!("#!{}\n", scratch.path("program").display()));
    Command::new("chmod").arg("+x").arg(&script).status().unwrap();
    let ran = scratch.run(&["trial", "--json", "--", "./script"]).ended(4);
    assert!(ran.err.contains("linked statically") && ran.out.is_empty(), "{}", ran.err);
}

#[test]
fn a_folder_that_no_object_can_be_loaded_from_is_named() {
    let test = "a_folder_that_no_object_can_be_loaded_from_is_named";
    let scratch = Scratch::new();
    if !reaches(&scratch, test) {
        return;
    }
    let trial = "$T trial -n 2 -k simple --tunables none -- true";
    let ran = scratch.shell(&format!("mkdir 'a b'; TMPDIR=\"$PWD/a b\" {trial}")).ended(1);
    assert!(ran.err.contains("blanks or colons in a path"), "{}", ran.err);
    let ran = scratch.shell(&format!("TMPDIR=no/such {trial}")).ended(1);
    assert!(ran.err.contains("no/such: No such file"), "{}", ran.err);
    // Mounts in a new mount namespace, so that no other process sees the file system.
    let inside =
        "mkdir n && unshare -m --propagation=slave sh -c 'mount -t tmpfs -o noexec none n && ";
    if scratch.shell(&format!("{inside} true'")).code != 0 {
        return skip(test, "a tmpfs cannot be mounted in a namespace of its own");
    }
    let inside = inside.replace("mkdir n && ", "");
    let ran = scratch.shell(&format!("{inside} TMPDIR=\"$PWD/n\" {trial}'")).ended(4);
    assert!(ran.err.contains("did not run in the program") && ran.out.is_empty(), "{}", ran.err);
    assert!(ran.err.contains("cannot be preloaded"), "{}", ran.err);
}

#[test]
fn a_program_that_dies_or_prints_no_number_gets_no_number() {
    let scratch = Scratch::new();
    if !reaches(&scratch, "a_program_that_dies_or_prints_no_number_gets_no_number") {
        return;
    }
    for (args, words) in [
        (&["--", "sh", "-c", "echo bad news >&2; exit 7"][..], "exit status: 7: bad news"),
        (&["--", "sh", "-c", "kill -9 $$"], "signal: 9"),
        (
            &["-m", "regex:([0-9.]+) requests", "--", "echo", "ready"],
            "printed nothing that matches",
        ),
        (&["-m", "regex:n=(.*)", "--", "echo", "n=-3"], "a number above 0"),
        (&["-m", "maxrss", "--", "true"], "use another metric"),
        (&["--timeout", "1", "--", "sleep", "60"], "still running after 1 s"),
    ] {
        let ran = scratch.run(&[&["trial", "-n", "2", "-k", "simple"], args].concat()).ended(1);
        assert!(ran.err.contains(words) && ran.err.contains("nothing was measured"), "{}", ran.err);
        assert!(ran.out.is_empty(), "{}", ran.text());
    }
}

#[test]
fn an_arm_that_dies_alone_is_named_beside_the_others() {
    let scratch = Scratch::new();
    if !reaches(&scratch, "an_arm_that_dies_alone_is_named_beside_the_others") {
        return;
    }
    let script = "test \"$THALWEG_KERNEL\" != simple || { echo wrong bytes >&2; exit 9; }";
    let args = ["trial", "-n", "2", "-k", "simple", "--tunables", "none", "--", "sh", "-c", script];
    let ran = scratch.run(&args).ended(1);
    assert!(
        ran.text().contains("simple failed: sh: exit status: 9: wrong bytes"),
        "{}",
        ran.text()
    );
    assert!(ran.err.contains("1 variant failed"), "{}", ran.err);
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_runs() {
    let scratch = Scratch::new();
    scratch.file("data", "no program");
    for (args, words) in [
        (&["trial"][..], "required"),
        (&["trial", "--"], "required"),
        (&["trial", "--", "no-such-command-here"], "not found in PATH"),
        (&["trial", "--", "./data"], "not executable"),
        (&["trial", "-k", "fast", "--", "true"], "vector-inline"),
        (&["trial", "-k", "libc", "--tunables", "none", "--", "true"], "give at least one kernel"),
        (&["trial", "-m", "speed", "--", "true"], "known: wall"),
        (&["trial", "-m", "regex:(", "--", "true"], "regex:("),
        (&["trial", "-n", "1", "--", "true"], "2..="),
        (&["trial", "--tunables", "x=1", "--", "true"], "glibc.cpu.NAME=VALUE"),
        (&["trial", "--bands", "avx2", "--", "true"], "BYTES=KERNEL"),
        (&["trial", "--server", "sleep 9", "--", "true"], "--ready"),
        (&["trial", "--port", "80", "--", "true"], "--server"),
        (&["trial", "--server", "a 'b", "--port", "80", "--", "true"], "missing closing quote"),
        (&["trial", "--server", " ", "--port", "80", "--", "true"], "the command is empty"),
    ] {
        let ran = scratch.run(args).ended(2);
        assert!(ran.err.contains(words), "{args:?}: {}", ran.err);
        assert!(ran.out.is_empty());
    }
}

#[test]
fn tuned_runs_by_its_bands_and_is_left_out_by_name_without_them() {
    let test = "tuned_runs_by_its_bands_and_is_left_out_by_name_without_them";
    let scratch = Scratch::new();
    if !reaches(&scratch, test) {
        return;
    }
    let args = ["trial", "-n", "2", "-k", "tuned,simple", "--tunables", "none", "--json"];
    let json = scratch.run(&[&args[..], &["--", "true"]].concat()).ended(0).json();
    assert_eq!(json["left_out"][0]["name"], "tuned");
    assert!(json["left_out"][0]["reason"].as_str().unwrap().contains("no sizes were measured"));
    let bands = ["--bands", "100=simple,5000=libc", "--", "true"];
    let json = scratch.run(&[&args[..], &bands].concat()).ended(0).json();
    assert_eq!(row(&json, "tuned")["copies"], "100=simple,5000=libc,libc");
}

#[test]
fn glibcs_own_thresholds_are_arms_of_their_own() {
    let scratch = Scratch::new();
    let setting = "glibc.malloc.check=0";
    let args = ["trial", "-n", "2", "-k", "libc", "--tunables", setting, "--json", "--"];
    let script = "test -z \"$LD_PRELOAD\" && echo 1${GLIBC_TUNABLES:+5}";
    let json = scratch.run(&[&args[..], &["sh", "-c", script]].concat());
    if json.code == 4 {
        return skip("glibcs_own_thresholds_are_arms_of_their_own", json.err.trim());
    }
    let json = json.ended(0).json();
    let arm = row(&json, "check=0");
    assert_eq!((&arm["kind"], &arm["text"]), (&"tunables".into(), &setting.into()));
    assert_eq!(json["reached"], Value::Null);
}

#[test]
fn an_interrupt_ends_the_trial_and_what_it_runs() {
    let scratch = Scratch::new();
    if !reaches(&scratch, "an_interrupt_ends_the_trial_and_what_it_runs") {
        return;
    }
    let mut command =
        scratch.thalweg(["trial", "--", "sh", "-c", "echo $$ >> pids; exec sleep 60"]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    let pids = scratch.path("pids");
    while std::fs::read_to_string(&pids).is_ok_and(|text| text.ends_with('\n')).eq(&false) {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let ran = support::Ran::of_child(child).ended(143);
    assert!(ran.err.contains("stopped before all rounds"), "{}", ran.err);
    let sleeper: i32 = std::fs::read_to_string(&pids).unwrap().trim().parse().unwrap();
    let sleeper = rustix::process::Pid::from_raw(sleeper).unwrap();
    assert_eq!(rustix::process::test_kill_process(sleeper), Err(rustix::io::Errno::SRCH));
}

#[test]
fn what_a_program_over_its_limit_has_started_ends_with_it() {
    let scratch = Scratch::new();
    if !reaches(&scratch, "what_a_program_over_its_limit_has_started_ends_with_it") {
        return;
    }
    let script = "sleep 600 & echo $! > pid.new; mv pid.new pid; wait";
    // On a busy machine, the shell may not have started `sleep` within one second.
    for limit in ["1", "10", "100"] {
        let ran = scratch.run(&["trial", "--timeout", limit, "--", "sh", "-c", script]).ended(1);
        assert!(ran.err.contains(&format!("still running after {limit} s")), "{}", ran.err);
        if scratch.path("pid").exists() {
            break;
        }
    }
    let sleeper = String::from_utf8(scratch.read("pid")).unwrap();
    // A zombie has ended, but the process that inherits orphans has not waited for it yet.
    let runs = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", sleeper.trim()));
        stat.is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().contains('Z'))
    };
    // A killed process ends only when the kernel schedules it.
    for _ in 0..6000 {
        if !runs() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{sleeper} runs still");
}

#[test]
fn a_server_is_asked_to_end_and_can_hear_it() {
    let scratch = Scratch::new();
    if !reaches(&scratch, "a_server_is_asked_to_end_and_can_hear_it") {
        return;
    }
    // The server must receive SIGTERM, so that its trap empties `up`. If it inherited a blocked SIGTERM, SIGKILL would
    // end it and leave `up` behind, and the next start would be refused.
    let serve = "sh -c 'trap \": > up; exit\" TERM; echo up > up; sleep 600 & wait'";
    let args = ["trial", "-n", "2", "-k", "simple", "--tunables", "none", "--server", serve];
    let ran = scratch.run(&[&args[..], &["--ready", "test -s up", "--", "true"]].concat()).ended(0);
    assert!(ran.text().contains("object-alone"), "{}", ran.text());
    assert_eq!(scratch.read("up"), b"");
}

//! If a limit on tasks allows no second thread, every command works with the first thread or reports the problem. If
//! the stack of the first thread is small, the command runs in a new thread with a larger stack.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::handovers::Place;
use crate::support::{
    Scratch, bytes,
    deny::run_without_threads,
    file_methods, run,
    run::{Ran, quiet_environment, shell},
    skip, thalweg,
};

/// A study that ends at once.
pub const STUDY: &str = r#"
schema = 1
id = "900"
title = "the harness against itself"
summary = "Ways that do nothing."
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

/// Runs a command that cannot create threads. Returns `None` if this machine does not allow seccomp filters.
fn alone(test: &str, command: &mut Command) -> Option<Ran> {
    let ran = run_without_threads(command);
    let ran = ran.inspect_err(|reason| skip(test, &format!("no seccomp: {reason}"))).ok()?;
    Some(ran.expect_no_panic())
}

fn tree(scratch: &Scratch) -> PathBuf {
    let tree = scratch.folder("tree");
    for n in 0..30 {
        let folder = tree.join((n % 3).to_string());
        fs::create_dir_all(&folder).unwrap();
        bytes::write(&folder.join(n.to_string()), n, n * 5000);
    }
    tree
}

fn expect_tree(copy: &Path) {
    for n in 0..30 {
        bytes::expect(&copy.join((n % 3).to_string()).join(n.to_string()), n, n * 5000);
    }
}

#[test]
fn a_tree_is_copied_by_one_thread_where_no_more_can_be_had() {
    let test = "a_tree_is_copied_by_one_thread_where_no_more_can_be_had";
    let scratch = Scratch::new();
    let (tree, copy) = (tree(&scratch), scratch.join("copy"));
    let mut command = thalweg();
    command.args(["copy", "-r", "--jobs", "8"]).args([&tree, &copy]);
    let Some(ran) = alone(test, &mut command) else { return };
    ran.expect(0);
    expect_tree(&copy);
    let mut tuned = thalweg();
    tuned.args(["copy", "-r", "--tune"]).args([&tree, &scratch.join("tuned")]);
    let Some(ran) = alone(test, &mut tuned) else { return };
    ran.expect(0);
    expect_tree(&scratch.join("tuned"));
}

#[test]
fn every_mechanism_moves_a_file_without_threads_or_steps_down() {
    let test = "every_mechanism_moves_a_file_without_threads_or_steps_down";
    let scratch = Scratch::new();
    let source = scratch.join("source");
    bytes::write(&source, 1, 8 << 20);
    for name in file_methods() {
        let copy = scratch.join(&name);
        let mut command = thalweg();
        command.args(["copy", "--method", &name]).args([&source, &copy]);
        let Some(ran) = alone(test, &mut command) else { return };
        match ran.code() {
            0 => bytes::expect(&copy, 1, 8 << 20),
            4 => assert!(!copy.exists(), "{name}"),
            _ => panic!("{name}: {}", ran.said()),
        }
    }
    let mut pipe = thalweg();
    pipe.arg("pipe").stdin(fs::File::open(&source).unwrap());
    let Some(ran) = alone(test, &mut pipe) else { return };
    assert!(ran.expect(0).stdout == bytes::of(1, 8 << 20));
}

#[test]
fn a_sender_and_a_receiver_without_threads_hand_a_file_over() {
    let test = "a_sender_and_a_receiver_without_threads_hand_a_file_over";
    let place = Place::new(20 << 20);
    for way in [&[][..], &["--as-bytes"]] {
        let (sent, received) = std::thread::scope(|scope| {
            let sender = scope.spawn(|| alone(test, &mut place.send(way)));
            let received = alone(test, &mut place.receive(&[]));
            (sender.join().unwrap(), received)
        });
        let (Some(sent), Some(received)) = (sent, received) else { return };
        sent.expect(0);
        received.expect(0);
        bytes::expect(&place.copy, 1, 20 << 20);
    }
}

#[test]
fn measuring_without_threads_ends_with_what_could_be_measured_or_the_reason() {
    let test = "measuring_without_threads_ends_with_what_could_be_measured_or_the_reason";
    let scratch = Scratch::new();
    let study = scratch.join("900-null.toml");
    fs::write(&study, STUDY).unwrap();
    let mut tune = thalweg();
    let pair = format!("file:file@{}", scratch.folder("files").display());
    tune.args(["tune", "--assume-idle", "--pair", &pair, "--budget", "5s"]);
    tune.env("THALWEG_PROFILE", scratch.join("profile.json"));
    let mut studied = thalweg();
    let few = ["--sessions", "3", "--rounds", "3", "--sample", "1ms", "--pause", "0s"];
    studied.arg("study").arg(&study).args(["--quick", "--no-save"]).args(few);
    studied.arg("--at").arg(scratch.path());
    for command in [&mut tune, &mut studied] {
        let Some(ran) = alone(test, command) else { return };
        assert!([0, 1, 4].contains(&ran.code()), "{}", ran.said());
        if ran.code() != 0 {
            ran.expect_said("thread");
        }
    }
}

#[test]
fn a_small_stack_is_enough() {
    let scratch = Scratch::new();
    let (tree, copy) = (tree(&scratch), scratch.join("copy"));
    for kib in ["64", "128"] {
        let line = "ulimit -s $1 && \"$2\" copy -r --jobs 4 \"$3\" \"$4-$1\" && \"$2\" list && echo x | \"$2\" pipe";
        let mut command = Command::new("sh");
        command.args(["-c", line, "sh", kib, env!("CARGO_BIN_EXE_thalweg")]).args([&tree, &copy]);
        quiet_environment(&mut command);
        run(&mut command).expect(0);
        expect_tree(&scratch.join(&format!("copy-{kib}")));
    }
}

#[test]
fn a_pipe_of_a_short_file_starts_no_thread_unless_an_interrupt_reports_something() {
    let test = "a_pipe_of_a_short_file_starts_no_thread_unless_an_interrupt_reports_something";
    let scratch = Scratch::new();
    if shell(scratch.path(), "command -v strace && strace -o /dev/null true").code() != 0 {
        return skip(test, "strace cannot trace here");
    }
    bytes::write(&scratch.join("short"), 1, 64 << 10);
    bytes::write(&scratch.join("longer"), 1, (64 << 10) + 1);
    shell(scratch.path(), "mkfifo fifo").expect(0);
    let threads = |line: &str| {
        let traced = format!("strace -f -o trace -e trace=clone,clone3 $T pipe {line}");
        shell(scratch.path(), &traced).expect(0);
        let trace = fs::read_to_string(scratch.join("trace")).unwrap();
        trace.lines().filter(|line| line.contains("CLONE_THREAD")).count()
    };
    for brief in ["< short > out", "< short | cat > out", "--no-profile < short > /dev/null"] {
        assert_eq!(threads(brief), 0, "{brief}");
    }
    bytes::expect(&scratch.join("out"), 1, 64 << 10);
    let reported = ["--json", "-v", "--limit 1G", "--tee copy", "--progress=json"];
    for options in reported {
        assert!(threads(&format!("{options} < short > out")) > 0, "{options}");
    }
    for waiting in ["< longer > out", "< fifo > out & cat short > fifo; wait $!"] {
        assert!(threads(waiting) > 0, "{waiting}");
    }
}

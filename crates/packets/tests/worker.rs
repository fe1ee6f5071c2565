//! Runs the real program as a study does, with the worker protocol over stdin and stdout.
#![allow(clippy::unwrap_used)]

use std::{
    io::Write,
    process::{Command, Output, Stdio},
};

/// Starts the program with these arguments, writes these lines to its stdin, and waits until it
/// exits.
fn told(words: &[&str], lines: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg-packets"));
    command.arg("--worker").args(words).args(["scratch=/nowhere"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // This write fails if the program exits before it has read everything. The tests check its
    // output instead.
    let _ = child.stdin.take().unwrap().write_all(lines.as_bytes());
    child.wait_with_output().unwrap()
}

fn lines(output: &Output) -> Vec<String> {
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn a_packet_is_an_operation_and_every_answer_is_the_protocols() {
    for (words, least, most) in [
        (&["--kernels=libc", "bytes=64"][..], 64, 64),
        (&["--kernels", "simple", "bytes=1518", "mbufs=8192"], 1518, 1518),
        (&["--kernels=vector-inline", "sizes=imix", "bytes=362"], 64, 1518),
    ] {
        let output = told(words, "hello\nwarm\nrun 1001\ncheck\nalias\nmemory\nquit\nrun 7\n");
        let said = lines(&output);
        assert!(output.status.success(), "{words:?}: {output:?}");
        assert_eq!(said.len(), 6, "{words:?}: {said:?}");
        assert_eq!((said[0].as_str(), said[1].as_str()), ("thalweg-worker 1", "ok"));
        let taken: serde_json::Value = serde_json::from_str(&said[2]).unwrap();
        let bytes = taken["bytes"].as_u64().unwrap();
        assert!((1001 * least..=1001 * most).contains(&bytes), "{words:?}: {taken}");
        assert!(taken["wall_ns"].as_u64().unwrap() > 0 && taken["calls"].is_null(), "{taken}");
        assert_eq!(said[3..], ["ok", "copied", "0"], "{words:?}");
    }
}

#[test]
fn what_cannot_be_done_is_said_once_and_ends_it() {
    let output = told(&["--kernels=memcpy2", "bytes=64"], "hello\nwarm\n");
    let said = lines(&output);
    assert_eq!((said.len(), output.status.code()), (1, Some(2)), "{output:?}");
    assert!(said[0].starts_with("unfit unknown kernel \"memcpy2\"") && said[0].contains("libc"));
    let output = told(&["--kernels=libc", "bytes=64"], "dance\nquit\n");
    assert_eq!(lines(&output), ["unfit no such command: dance"]);
}

#[test]
fn words_that_make_no_sense_are_named() {
    for (words, named) in [
        (&["--kernels=libc", "bytes=4096"][..], "bytes=4096"),
        (&["--kernels=libc", "bytes=64", "speed=9"], "--speed"),
        (&["--kernels=libc"], "--bytes"),
        (&["bytes=64"], "--kernels"),
    ] {
        let output = told(words, "hello\n");
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains(named) && output.stdout.is_empty(), "{words:?}: {error}");
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn kernels_that_need_hidden_features_are_not_there() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg-packets"));
    command.args(["--worker", "--kernels=inline-avx512", "bytes=64"]).env("THALWEG_CPU", "-avx2");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let _ = child.stdin.take().unwrap().write_all(b"hello\n");
    let output = child.wait_with_output().unwrap();
    let said = lines(&output).join("\n");
    assert!(said.contains("this processor cannot run the kernel inline-avx512"), "{output:?}");
    assert!(said.contains("simple called") && !said.contains("avx2"), "{said}");
    assert_eq!(command.env("THALWEG_CPU", "-avx").output().unwrap().status.code(), Some(2));
}

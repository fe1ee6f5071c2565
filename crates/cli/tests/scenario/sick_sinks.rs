//! Destinations that report errors late, or accept fewer bytes than given, simulated with FUSE.

use std::{ffi::OsString, process::Command};

use crate::support::{
    Scratch, bytes, file_methods,
    fuse::sink::{Illness, SickSink},
    run,
    run::quiet_environment,
    thalweg,
};

const LEN: u64 = 1024 * 1024 + 77;

/// Copies to a faulty file system with every mechanism, and with the choice of the planner.
fn by_every_way(test: &str, illness: Illness, judge: impl Fn(&[&str], i32, &str, &SickSink)) {
    let scratch = Scratch::new();
    let source = scratch.join("source");
    bytes::write(&source, 1, LEN);
    let methods = file_methods();
    let ways = methods.iter().map(|name| vec!["--method", name]);
    for way in ways.chain([vec![], vec!["--resume"], vec!["--inplace"]]) {
        let Some(sick) = SickSink::mount(test, illness) else { return };
        let mut copy = thalweg();
        copy.arg("copy").args(&way).args([&source, &sick.folder().join("copy")]);
        let ran = run(&mut copy).expect_no_panic();
        judge(&way, ran.code(), &ran.stderr, &sick);
    }
}

#[test]
fn short_writes_lose_nothing() {
    let test = "short_writes_lose_nothing";
    by_every_way(test, Illness::ShortWrites, |way, code, said, sick| match code {
        0 => {
            let whole = sick.bytes("copy") == Some(bytes::of(1, LEN as usize));
            assert!(whole, "{way:?}: other bytes");
            assert_eq!(sick.names(), ["copy"], "{way:?}");
        }
        4 => assert_eq!(sick.names(), Vec::<OsString>::new(), "{way:?}"),
        _ => panic!("{way:?}: {code}: {said}"),
    });
}

#[test]
fn a_server_that_is_full_is_named_and_keeps_nothing() {
    let test = "a_server_that_is_full_is_named_and_keeps_nothing";
    by_every_way(test, Illness::FullAt(700_001), |way, code, said, sick| {
        if code == 4 {
            return;
        }
        let is_kept = |name: &OsString| name.to_string_lossy().contains("thalweg-");
        // If a partial file stays, the copy can be resumed (exit status 3).
        let expected = if sick.names().iter().any(is_kept) { 3 } else { 1 };
        assert_eq!(code, expected, "{way:?}: {said}");
        assert!(said.contains("ENOSPC") && said.contains("sick/copy"), "{way:?}: {said}");
        match way {
            ["--inplace"] => {}
            ["--resume"] => assert!(sick.names().iter().all(is_kept), "{:?}", sick.names()),
            _ => assert_eq!(sick.names(), Vec::<OsString>::new(), "{way:?}"),
        }
    });
}

#[test]
fn an_error_that_only_close_returns_is_reported() {
    let test = "an_error_that_only_close_returns_is_reported";
    by_every_way(test, Illness::LostAtClose, |way, code, said, sick| {
        if code == 4 {
            return;
        }
        assert_eq!(code, 1, "{way:?}: {said}");
        assert!(said.contains("EIO") && said.contains("sick/copy"), "{way:?}: {said}");
        assert!(way == ["--inplace"] || sick.bytes("copy").is_none(), "{way:?}: it has its name");
    });
}

#[test]
fn an_error_that_only_close_returns_is_reported_for_streams() {
    let test = "an_error_that_only_close_returns_is_reported_for_streams";
    let Some(sick) = SickSink::mount(test, Illness::LostAtClose) else { return };
    let scratch = Scratch::new();
    let source = scratch.join("source");
    bytes::write(&source, 1, LEN);
    let (tee, copy) = (sick.folder().join("tee"), sick.folder().join("copy"));
    let commands = [
        ("\"$0\" pipe <\"$1\" >\"$2\"", &copy),
        ("\"$0\" pipe --tee \"$2\" <\"$1\" >/dev/null", &tee),
        ("\"$0\" copy \"$1\" - >\"$2\"", &copy),
        ("\"$0\" copy - \"$2\" <\"$1\"", &copy),
    ];
    for (text, sink) in commands {
        let mut shell = Command::new("sh");
        shell.args(["-c", text, env!("CARGO_BIN_EXE_thalweg")]).arg(&source).arg(sink);
        quiet_environment(&mut shell);
        let ran = run(&mut shell).expect_no_panic();
        assert_eq!(ran.code(), 1, "{text}: {}", ran.said());
        assert!(ran.stderr.contains("EIO"), "{text}: {}", ran.stderr);
    }
}

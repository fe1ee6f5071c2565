//! Tests that cannot run on this machine.

use std::{
    collections::BTreeSet,
    fs::OpenOptions,
    io::Write,
    process::Command,
    sync::{Mutex, PoisonError},
};

static NOTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Records that a test, or a part of it, did not run: on standard error, and as one line of the file named by
/// `THALWEG_SKIPS`. `make test` counts these lines. A process records each line once.
/// # Panics
/// If the line cannot be written to that file.
pub fn skip(test: &str, reason: &str) {
    let line = format!("{test}: {reason}\n");
    if !NOTED.lock().unwrap_or_else(PoisonError::into_inner).insert(line.clone()) {
        return;
    }
    eprint!("skipped: {line}");
    let Some(path) = std::env::var_os("THALWEG_SKIPS") else { return };
    let file = OpenOptions::new().create(true).append(true).open(path);
    let mut file = file.expect("the file THALWEG_SKIPS names");
    file.write_all(line.as_bytes()).expect("a line in THALWEG_SKIPS");
}

/// Returns `true` if these programs are installed. Otherwise records a skip of the test.
pub fn has_tools(test: &str, tools: &[&str]) -> bool {
    let is_there = |tool: &&&str| {
        let mut look = Command::new("sh");
        look.args(["-c", "command -v \"$1\" >/dev/null", "sh", tool]);
        look.status().is_ok_and(|status| status.success())
    };
    let missing: Vec<_> = tools.iter().filter(|tool| !is_there(tool)).collect();
    if !missing.is_empty() {
        skip(test, &format!("not installed: {missing:?}"));
    }
    missing.is_empty()
}

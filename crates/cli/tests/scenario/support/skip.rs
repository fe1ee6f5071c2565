//! Skips that are counted, and the questions that lead to them.

use std::{fs::OpenOptions, io::Write, process::Command};

/// One line in the file that `make test` prints at its end.
pub fn skip(test: &str, reason: &str) {
    eprintln!("skipped: {test}: {reason}");
    if let Some(path) = std::env::var_os("THALWEG_SKIPS") {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let mut file = file.expect("the file THALWEG_SKIPS names");
        file.write_all(format!("{test}: {reason}\n").as_bytes()).expect("a line in THALWEG_SKIPS");
    }
}

/// Whether this may run as root does; if not, that is a skip.
pub fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip(test, "needs root");
    }
    root
}

/// Whether these programs are installed; if not, that is a skip.
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

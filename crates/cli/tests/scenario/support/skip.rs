//! Skips that are counted, and the questions that lead to them.

use std::process::Command;

#[path = "../../support/skip.rs"]
mod counted;

pub use counted::skip;

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

//! Standard output and standard error, without a panic when they are gone or full.

use serde::Serialize;
use std::io::{ErrorKind, Write};
use thalweg_core::shown_lines;

use crate::{
    exit::{Exit, Failure, OUTPUT},
    stdio::expect_open,
};

const SIGPIPE: i32 = rustix::process::Signal::PIPE.as_raw();

/// Prints on standard output.
pub fn print(text: &str) -> Result<(), Failure> {
    print_bytes(text.as_bytes())
}

/// Prints what is no text on standard output: names of files as they are.
pub fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    expect_open(1, OUTPUT)?;
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(bytes).and_then(|()| stdout.flush());
    written.map_err(|e| match e.kind() {
        // Where SIGPIPE does not kill: the same to the shell, and not a word.
        ErrorKind::BrokenPipe => Failure::new(Exit::Signal(SIGPIPE), ""),
        _ => Failure::of_io("write", OUTPUT, &e),
    })
}

/// Prints one JSON document on standard output.
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value);
    let text =
        text.map_err(|e| Failure::new(Exit::Failed, format!("no JSON of the answer: {e}")))?;
    print(&(text + "\n"))
}

/// A line, or several, on standard error; if that is gone there is nobody to tell. Whatever of it came
/// from elsewhere steers no terminal; where it may hold lines of its own it is [`thalweg_core::shown`] before.
pub fn note(text: &str) {
    note_json(&shown_lines(text).to_string());
}

/// The same for what programs read, and nobody may change.
pub fn note_json(line: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = writeln!(stderr, "{line}");
}

/// The way errors and warnings look: `thalweg: ...`.
pub fn complain(message: &str) {
    note(&format!("thalweg: {message}"));
}

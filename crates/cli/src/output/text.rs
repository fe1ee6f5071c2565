//! Standard output and standard error, without a panic if they are closed or full.

use serde::Serialize;
use std::{
    io::{ErrorKind, Write},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};
use thalweg_core::shown_lines;

use crate::{
    exit::{CommandFailure, ERRORS, Exit, OUTPUT},
    stdio::expect_open,
};

const SIGPIPE: i32 = rustix::process::Signal::PIPE.as_raw();

/// The first failure to write results while the work continued; see [`lost`].
static LOST: Mutex<Option<CommandFailure>> = Mutex::new(None);

/// `true` after the JSON object of the command was printed.
static ANSWERED: AtomicBool = AtomicBool::new(false);

/// The stream for the JSON object of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerStream {
    Output,
    /// Standard error, because standard output carries data.
    Errors,
}

impl AnswerStream {
    /// Returns standard error if standard output carries data.
    pub fn beside(carries_data: bool) -> Self {
        if carries_data { Self::Errors } else { Self::Output }
    }
}

/// Prints on standard output.
pub fn print(text: &str) -> Result<(), CommandFailure> {
    print_bytes(text.as_bytes())
}

/// Prints bytes on standard output, such as unmodified file names, which may not be UTF-8.
pub fn print_bytes(bytes: &[u8]) -> Result<(), CommandFailure> {
    expect_open(1, OUTPUT)?;
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(bytes).and_then(|()| stdout.flush());
    written.map_err(|e| not_written(OUTPUT, &e))
}

/// Returns the failure for a write error. After EPIPE, a command that ignores SIGPIPE ends without a message, as if
/// SIGPIPE had killed it.
fn not_written(stream: &str, error: &std::io::Error) -> CommandFailure {
    match error.kind() {
        ErrorKind::BrokenPipe => CommandFailure::new(Exit::Signal(SIGPIPE), ""),
        _ => CommandFailure::of_io("write", stream, error),
    }
}

/// Prints a line of results while the work continues. If the write fails, [`lost`] returns the failure later. EPIPE is
/// not a failure: the reader has closed the pipe.
pub fn print_line(line: &str) {
    keep(print(&format!("{line}\n")).or_else(|failure| match failure.exit {
        Exit::Signal(SIGPIPE) => Ok(()),
        _ => Err(failure),
    }));
}

/// Stores a failure to write results until the command ends.
pub fn keep(written: Result<(), CommandFailure>) {
    if let Err(failure) = written {
        LOST.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
    }
}

/// Takes the first failure that [`print_line`] or [`keep`] stored.
pub fn lost() -> Option<CommandFailure> {
    LOST.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Prints one JSON document on standard output.
pub fn print_json(value: &impl Serialize) -> Result<(), CommandFailure> {
    let text = serde_json::to_string_pretty(value);
    let text = text.map_err(|e| {
        CommandFailure::new(Exit::Failed, format!("cannot write the result as JSON: {e}"))
    })?;
    print(&(text + "\n"))
}

/// Prints one or several lines on standard error; write errors are ignored. Control characters are escaped, so that
/// foreign text cannot control the terminal. Text that may contain line breaks must be passed through
/// [`thalweg_core::shown`] first.
pub fn note(text: &str) {
    note_json(&shown_lines(text).to_string());
}

/// Prints a line of JSON on standard error, unmodified.
pub fn note_json(line: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = writeln!(stderr, "{line}");
}

/// Prints the JSON object of the command as one line.
pub fn answer(line: &str, stream: AnswerStream) -> Result<(), CommandFailure> {
    ANSWERED.store(true, Relaxed);
    if stream == AnswerStream::Output {
        return print(&format!("{line}\n"));
    }
    expect_open(2, ERRORS)?;
    writeln!(std::io::stderr().lock(), "{line}").map_err(|e| not_written(ERRORS, &e))
}

/// Prints the JSON object that another machine has sent as the result of this command.
pub fn relay_answer(line: &str) {
    ANSWERED.store(true, Relaxed);
    print_line(line);
}

/// Returns `true` after the command's JSON object was printed.
pub fn has_answered() -> bool {
    ANSWERED.load(Relaxed)
}

/// Prints the message and the hint of a failure, unless they are empty, and returns its exit status.
pub fn report(failure: &CommandFailure) -> Exit {
    if !failure.message.is_empty() {
        complain(&failure.message);
    }
    hint(&failure.hint);
    failure.exit
}

/// Prints what the user can do next in the form `hint: ...`, unless the text is empty.
pub fn hint(text: &str) {
    if !text.is_empty() {
        note(&format!("hint: {text}"));
    }
}

/// Prints an error or a warning in the form `thalweg: ...`.
pub fn complain(message: &str) {
    note(&format!("thalweg: {message}"));
}

//! Exit codes of the command, and the failure that a command reports before it exits with a code other than 0.

use std::{path::Path, process::ExitCode};
use thalweg_core::{
    Error,
    atomic_file::{CallFailed, DestinationError},
    failed::{Failed, of_io, quoted},
    shown,
};
use thalweg_sys::{Errno, signal};
use thalweg_tree::sync::DeleteRefusal;

/// Name of standard input in messages.
pub const INPUT: &str = "standard input";
/// Name of standard output in messages.
pub const OUTPUT: &str = "standard output";
/// Name of standard error in messages.
pub const ERRORS: &str = "standard error";

/// Exit status, as listed in the manual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Done,
    /// The data differ: verification failed.
    Differ,
    /// The whole command or a part of it failed. As in `cp`, one missing source is enough.
    Failed,
    /// The command line is invalid.
    Usage,
    /// The command is incomplete, and the same command with `--resume` continues; or a source changed during the copy.
    Incomplete,
    /// The machine does not support the request.
    Unsupported,
    /// A signal ended the command; the status is 128 plus its number, as in shells. Interrupted commands return
    /// [`Exit::Failed`], which [`Exit::as_interrupted`] converts.
    Signal(i32),
}

impl Exit {
    /// Applies the rule for interrupts of all commands: after an interrupt, an incomplete command exits with the
    /// signal's status. Differing data and usage errors keep their own status.
    pub fn as_interrupted(self) -> Self {
        match (self, signal::which()) {
            (Self::Failed | Self::Incomplete, Some(signal)) => Self::Signal(signal),
            (exit, _) => exit,
        }
    }
}

impl Exit {
    /// Returns the number of the status.
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Differ | Self::Failed => 1,
            Self::Usage => 2,
            Self::Incomplete => 3,
            Self::Unsupported => 4,
            Self::Signal(signal) => 128 | (signal as u8 & 0x7f),
        }
    }

    /// Returns the exit status with this number. Returns `None` for the number of a signal, and for any other number
    /// that thalweg does not use.
    pub fn of_code(code: i32) -> Option<Self> {
        let all = [Self::Done, Self::Failed, Self::Usage, Self::Incomplete, Self::Unsupported];
        all.into_iter().find(|exit| i32::from(exit.code()) == code)
    }
}

/// Returns the exit status of a command with several parts, from those of two parts. [`Exit::Differ`] takes precedence
/// over all others, because wrong bytes must not be missed. A failure takes precedence over a usage error, because the
/// command may have changed something. [`Exit::Incomplete`] counts only if no other error occurred, because it means
/// that the same command continues.
pub fn worse(one: Exit, other: Exit) -> Exit {
    let severity = |exit: Exit| match exit {
        Exit::Done => 0,
        Exit::Incomplete => 1,
        Exit::Unsupported => 2,
        Exit::Usage => 3,
        Exit::Failed => 4,
        Exit::Signal(_) => 5,
        Exit::Differ => 6,
    };
    if severity(other) > severity(one) { other } else { one }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// The reason why a command did not complete.
#[derive(Debug)]
pub struct CommandFailure {
    pub exit: Exit,
    /// Operation, file and reason; empty if everything was already reported.
    pub message: String,
    /// What the user can do next; empty if unknown.
    pub hint: String,
    /// `true` if the command failed because another machine does not have thalweg.
    pub is_without_program: bool,
}

impl CommandFailure {
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), hint: String::new(), is_without_program: false }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// Sets `is_without_program` if `code`, the exit status of a shell, means that it cannot find or run the program.
    pub fn of_program(mut self, code: Option<i32>) -> Self {
        self.is_without_program = matches!(code, Some(126 | 127));
        self
    }

    /// Returns the message with the hint in one line: for JSON, and for the other process of a transfer.
    pub fn one_line(&self) -> String {
        if self.hint.is_empty() {
            self.message.clone()
        } else {
            format!("{}; {}", self.message, self.hint)
        }
    }

    /// Creates the failure of a system call on a named object.
    pub fn of_call(call: &str, what: &str, errno: Errno) -> Self {
        let failed = Failed { what: &named(what), call, errno, moved: 0 };
        Self::new(Exit::Failed, failed.to_string()).hint(advice(errno))
    }

    /// Creates the failure of an operation of the standard library.
    pub fn of_io(call: &str, what: &str, error: &std::io::Error) -> Self {
        match Errno::from_io_error(error) {
            Some(errno) => Self::of_call(call, what, errno),
            None => Self::new(Exit::Failed, of_io(&named(what), call, error)),
        }
    }
}

impl CommandFailure {
    /// Creates the failure of opening, writing or publishing a destination.
    pub fn of_destination(error: DestinationError, path: &Path) -> Self {
        let name = quoted(path);
        let (exit, why, hint) = match error {
            DestinationError::Call(CallFailed { call, errno }) => {
                return Self::of_call(call, &shown(path).to_string(), errno);
            }
            DestinationError::NoFolder => (
                Exit::Usage,
                "no such directory",
                "create the directory, or name a file as the destination",
            ),
            DestinationError::Dangling => {
                (Exit::Failed, "dangling symbolic link", "remove the link, or name its target")
            }
            DestinationError::Exists => {
                (Exit::Failed, "already exists", "use --force to replace it")
            }
            DestinationError::NoFile => (Exit::Failed, "exists and is not a regular file", ""),
            DestinationError::Trap => (
                Exit::Failed,
                "belongs to another user in a world-writable directory; not opened",
                "",
            ),
        };
        Self::new(exit, format!("{name}: {why}")).hint(hint)
    }
}

/// Creates the failure of a transfer between two endpoints: file, reason, offset and hint.
pub fn transfer_failure(error: &Error, source: &str, sink: &str) -> CommandFailure {
    let message = error.between(&named(source), &named(sink));
    CommandFailure::new(Exit::Failed, message).hint(advice(error.errno))
}

/// Quotes a file name. Standard input and output are not quoted.
pub fn named(what: &str) -> String {
    if matches!(what, INPUT | OUTPUT) { what.to_owned() } else { quoted(what) }
}

/// Returns the hint for the errnos that the user can act on; otherwise an empty string.
pub fn advice(errno: Errno) -> &'static str {
    match errno {
        Errno::NOSPC => "free some space there, or choose another destination",
        Errno::DQUOT => "free some space there, or ask for a larger quota",
        Errno::FBIG => "raise `ulimit -f`, or choose a file system that supports larger files",
        Errno::ROFS => "choose another destination, or mount the file system read-write",
        Errno::IO => "see the kernel log (`dmesg`) for errors of the device",
        Errno::MFILE => "raise `ulimit -n`",
        Errno::STALE => {
            "the file was removed or replaced on the file server; run the command again, or mount the file system again"
        }
        _ => "",
    }
}

/// Returns the hint for a refused deletion; it may be empty.
pub fn advice_on_refusal(refused: &DeleteRefusal) -> &'static str {
    match refused {
        DeleteRefusal::EmptySource | DeleteRefusal::OtherDevice => {
            "check that the source is mounted; --force deletes anyway"
        }
        DeleteRefusal::Failures(_) | DeleteRefusal::Unlisted(_) => {
            "fix the cause of the errors and run the command again; --force deletes anyway"
        }
        DeleteRefusal::Vanished => "run the command again; --force deletes anyway",
        DeleteRefusal::ContainsSource(_) => "exclude that directory, or use another destination",
        DeleteRefusal::TooMany { .. } => {
            "raise --max-delete, or use --force to delete these entries; a dry run (-n) lists them"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Exit::{Differ, Done, Failed, Incomplete, Signal, Unsupported, Usage},
        worse,
    };

    #[test]
    fn the_most_severe_status_of_several_parts_counts_in_any_order() {
        let all = [Done, Incomplete, Unsupported, Usage, Failed, Signal(13), Differ];
        for (n, one) in all.into_iter().enumerate() {
            for (m, other) in all.into_iter().enumerate() {
                assert_eq!(worse(one, other), all[n.max(m)], "{one:?} {other:?}");
            }
        }
    }
}

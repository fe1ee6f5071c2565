//! How the command ends: the exit codes, and the sentence printed once before all but the first.

use std::{path::Path, process::ExitCode};
use thalweg_core::{
    Error,
    atomic_file::{CallFailed, DestinationError},
    failed::{Failed, of_io, quoted},
    shown,
};
use thalweg_sys::{Errno, signal};

/// What messages call standard input.
pub const INPUT: &str = "standard input";
/// What messages call standard output.
pub const OUTPUT: &str = "standard output";
/// What messages call standard error.
pub const ERRORS: &str = "standard error";

/// The exit status, as the manual lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Everything was done.
    Done,
    /// The data differ: a verification failed.
    Differ,
    /// It failed, or some of it did, as a missing source makes `cp` fail.
    Failed,
    /// The command line makes no sense.
    Usage,
    /// Not everything was done, and the same command with `--resume` goes on; or a source changed
    /// while it was copied.
    Incomplete,
    /// This machine cannot do what was asked for.
    Unsupported,
    /// Stopped by this signal, said the way shells say it. Commands say [`Exit::Failed`] when they
    /// are interrupted: [`Exit::as_interrupted`] makes it this.
    Signal(i32),
}

impl Exit {
    /// The one rule for interrupts, whatever the command: one that came before everything was done
    /// ends it with its own status. Wrong bytes and wrong words are told all the same.
    pub fn as_interrupted(self) -> Self {
        match (self, signal::which()) {
            (Self::Failed | Self::Incomplete, Some(signal)) => Self::Signal(signal),
            (exit, _) => exit,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        let code = match exit {
            Exit::Done => 0,
            Exit::Differ | Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Incomplete => 3,
            Exit::Unsupported => 4,
            Exit::Signal(signal) => 128 | (signal as u8 & 0x7f),
        };
        Self::from(code)
    }
}

/// Why a command did not do everything, in words; empty if everything was said already.
#[derive(Debug)]
pub struct Failure {
    pub exit: Exit,
    /// What, where, why, how far, what next.
    pub message: String,
}

impl Failure {
    /// A failure with its sentence.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }

    /// A call on a named thing failed.
    pub fn of_call(call: &str, what: &str, errno: Errno) -> Self {
        let failed = Failed { what: &named(what), call, errno, moved: 0 };
        Self::new(Exit::Failed, format!("{failed}{}", advice(errno)))
    }

    /// The same for what the standard library says.
    pub fn of_io(call: &str, what: &str, error: &std::io::Error) -> Self {
        match Errno::from_io_error(error) {
            Some(errno) => Self::of_call(call, what, errno),
            None => Self::new(Exit::Failed, of_io(&named(what), call, error)),
        }
    }
}

impl Failure {
    /// A destination that could not be opened, written or published.
    pub fn of_destination(error: DestinationError, path: &Path) -> Self {
        let name = quoted(path);
        let (exit, why) = match error {
            DestinationError::Call(CallFailed { call, errno }) => {
                return Self::of_call(call, &shown(path).to_string(), errno);
            }
            DestinationError::NoFolder => (Exit::Usage, "no such folder; make it, or name a file"),
            DestinationError::Dangling => {
                (Exit::Failed, "a symbolic link to nothing; remove it first")
            }
            DestinationError::Exists => (Exit::Failed, "there already; --force replaces it"),
            DestinationError::NoFile => (Exit::Failed, "there already, and no file"),
            DestinationError::Trap => (
                Exit::Failed,
                "belongs to another user, in a directory that every user may write; not followed, \
                 not written into",
            ),
        };
        Self::new(exit, format!("{name}: {why}"))
    }
}

/// What a transfer between two named ends stopped at: where, why, how far, what next.
pub fn transfer_error(error: &Error, source: &str, sink: &str) -> String {
    format!("{}{}", error.between(&named(source), &named(sink)), advice(error.errno))
}

/// A file's name between quotes; what has no name as it is.
pub fn named(what: &str) -> String {
    if matches!(what, INPUT | OUTPUT) { what.to_owned() } else { quoted(what) }
}

/// What to do next, for the errnos where there is something to do.
pub fn advice(errno: Errno) -> &'static str {
    match errno {
        Errno::NOSPC => "; free some space there, or choose another destination",
        Errno::DQUOT => "; the quota is used up",
        Errno::FBIG => "; the file would be larger than its file system or `ulimit -f` allows",
        Errno::ROFS => "; it is mounted read-only",
        Errno::IO => "; the device reports an error: see the kernel's log",
        Errno::MFILE => "; raise `ulimit -n`",
        Errno::STALE => "; the server forgot the file: mount again, or try again",
        _ => "",
    }
}

//! Helper processes of a measurement: sessions, receivers, loads. The hidden command `thalweg helper KIND` runs them;
//! `thalweg-lab-helper` is its counterpart for our tests.

use std::process::ExitCode;
use thalweg_sys::signal;

use crate::{
    arms::{
        CATALOGUE, Catalogue,
        bulk::receiving,
        far::{feeder, receiver},
    },
    probes::{libc_thresholds, tune_machine},
    study::{load, session},
};

/// A kind of helper: its name, and the function that gets the remaining arguments. It communicates over stdin and
/// stdout, and exits when stdin is closed.
pub type Helper = (&'static str, fn(&[String]) -> Result<(), String>);

pub static HELPERS: &[Helper] = &[
    ("bulk", receiving::run),
    ("feeder", feeder::run),
    ("load", load::main),
    ("memcpy", libc_thresholds::child::main),
    ("receiver", receiver::run),
    ("session", |_| session::main(&CATALOGUE)),
    ("survey", |_| tune_machine::serve()),
];

/// Runs the helper named by the first argument.
pub fn main(arguments: &[String]) -> ExitCode {
    ExitCode::from(run(arguments) as u8)
}

/// Runs the helper and returns the exit status: 0, 1 if it failed, 2 if the kind is unknown.
pub fn run(arguments: &[String]) -> i32 {
    let Some((kind, rest)) = arguments.split_first() else {
        eprintln!("thalweg helper: it is started by other commands, with the kind of helper");
        return 2;
    };
    let Some((_, run)) = HELPERS.iter().find(|(name, _)| name == kind) else {
        eprintln!("thalweg helper: there is no kind {kind:?}");
        return 2;
    };
    deaf_to_closed_pipes();
    end(kind, run(rest))
}

/// Like [`main`], but sessions use another catalogue of works and probes. Our tests add faulty ones.
pub fn main_with(catalogue: &Catalogue, arguments: &[String]) -> ExitCode {
    match arguments {
        [kind] if kind == "session" => {
            deaf_to_closed_pipes();
            ExitCode::from(end(kind, session::main(catalogue)) as u8)
        }
        arguments => main(arguments),
    }
}

/// Ignores SIGPIPE, so that a write to a closed pipe fails with EPIPE, which can be reported.
fn deaf_to_closed_pipes() {
    // Fails only for signals that do not exist.
    let _ = signal::ignore_sigpipe();
}

fn end(kind: &str, result: Result<(), String>) -> i32 {
    match result {
        Ok(()) => 0,
        Err(reason) => {
            eprintln!("thalweg helper {kind}: {reason}");
            1
        }
    }
}

//! Processes that help a measurement: sessions, receivers, loads. The command line has one hidden
//! command, `thalweg helper KIND`, that ends here; `thalweg-lab-helper` is the same for our tests.

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

/// One kind of helper: its name, and what it does with the rest of its arguments. It talks over
/// stdin and stdout, and ends when stdin does.
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

/// Runs the helper that the first argument names.
pub fn main(arguments: &[String]) -> ExitCode {
    ExitCode::from(run(arguments) as u8)
}

/// The same, answering the exit status: 0, 1 if it could not go on, 2 if there is no such helper.
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

/// The same with sessions that know other works and probes: our own tests plant faults in some.
pub fn main_with(catalogue: &Catalogue, arguments: &[String]) -> ExitCode {
    match arguments {
        [kind] if kind == "session" => {
            deaf_to_closed_pipes();
            ExitCode::from(end(kind, session::main(catalogue)) as u8)
        }
        arguments => main(arguments),
    }
}

/// A peer that went away is then an error that can be told.
fn deaf_to_closed_pipes() {
    // It fails for no signal that exists.
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

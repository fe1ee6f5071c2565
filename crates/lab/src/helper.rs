//! Processes that help a measurement: sessions, receivers, loads. The command line has one hidden
//! command, `thalweg helper KIND`, that ends here; `thalweg-lab-helper` is the same for our tests.

use std::process::ExitCode;

use crate::{
    study::{load, session},
    works::{CATALOGUE, Catalogue},
};

/// One kind of helper: its name, and what it does with the rest of its arguments. It talks over
/// stdin and stdout, and ends when stdin does.
pub type Helper = (&'static str, fn(&[String]) -> Result<(), String>);

/// Every kind.
pub static HELPERS: &[Helper] = &[("load", load::main), ("session", |_| session::main(&CATALOGUE))];

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
    end(kind, run(rest))
}

/// The same with sessions that know other works and probes: our own tests plant faults in some.
pub fn main_with(catalogue: &Catalogue, arguments: &[String]) -> ExitCode {
    match arguments {
        [kind] if kind == "session" => ExitCode::from(end(kind, session::main(catalogue)) as u8),
        arguments => main(arguments),
    }
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

//! Processes that help a measurement: sessions, receivers, loads. The command line has one hidden
//! command, `thalweg helper KIND`, that ends here; `thalweg-lab-helper` is the same for our tests.

use std::{
    path::Path,
    process::{Command, ExitCode},
};
use thalweg_sys::signal;

mod feeder;
mod line;
mod receiver;

pub(crate) use line::spent;

/// One kind of helper: its name, and what it does with the rest of its arguments. It talks over
/// stdin and stdout, and ends when stdin does.
pub type Helper = (&'static str, fn(&[String]) -> Result<(), String>);

/// Every kind.
pub static HELPERS: &[Helper] = &[("receiver", receiver::run), ("feeder", feeder::run)];

/// The command that starts a helper of this kind: `program` is `thalweg`, or the one of our tests.
pub fn command(program: &Path, kind: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["helper", kind]);
    command
}

/// Runs the helper that the first argument names.
pub fn main(arguments: &[String]) -> ExitCode {
    let Some((kind, rest)) = arguments.split_first() else {
        eprintln!("thalweg helper: it is started by other commands, with the kind of helper");
        return ExitCode::from(2);
    };
    let Some((_, run)) = HELPERS.iter().find(|(name, _)| name == kind) else {
        eprintln!("thalweg helper: there is no kind {kind:?}");
        return ExitCode::from(2);
    };
    // A peer that went away is an error that can be told. It fails for no signal that exists.
    let _ = signal::ignore_sigpipe();
    match run(rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("thalweg helper {kind}: {reason}");
            ExitCode::FAILURE
        }
    }
}

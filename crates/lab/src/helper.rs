//! Processes that help a measurement: sessions, receivers, loads. The command line has one hidden
//! command, `thalweg helper KIND`, that ends here; `thalweg-lab-helper` is the same for our tests.

use std::process::ExitCode;

/// One kind of helper: its name, and what it does with the rest of its arguments. It talks over
/// stdin and stdout, and ends when stdin does.
pub type Helper = (&'static str, fn(&[String]) -> Result<(), String>);

/// Every kind.
pub static HELPERS: &[Helper] = &[];

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
    match run(rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("thalweg helper {kind}: {reason}");
            ExitCode::FAILURE
        }
    }
}

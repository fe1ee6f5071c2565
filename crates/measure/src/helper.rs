//! Helper processes of a measurement: sessions, receivers, loads. The hidden command `thalweg helper KIND` runs them.

use thalweg_sys::signal;

use crate::{arms::bulk::receiving, load, tune_machine};

/// A kind of helper: its name, and the function that gets the remaining arguments. It communicates over stdin and
/// stdout, and exits when stdin is closed.
pub type Helper = (&'static str, fn(&[String]) -> Result<(), String>);

pub static HELPERS: &[Helper] =
    &[("bulk", receiving::run), ("load", load::main), ("survey", |_| tune_machine::serve())];

/// Runs the helper of these lists that the first argument names. Returns the exit status: 0, 1 if it failed, 2 if the
/// kind is unknown.
pub fn run(lists: &[&[Helper]], arguments: &[String]) -> i32 {
    let Some((kind, rest)) = arguments.split_first() else {
        eprintln!(
            "thalweg helper: internal command, which other commands of thalweg start with the kind of helper"
        );
        return 2;
    };
    let Some((_, run)) = lists.iter().copied().flatten().find(|(name, _)| name == kind) else {
        eprintln!("thalweg helper: unknown kind {kind:?}");
        return 2;
    };
    exit_status(kind, || run(rest))
}

/// Runs one helper and prints its error. Returns the exit status: 0, or 1 if it failed.
pub fn exit_status(kind: &str, run: impl FnOnce() -> Result<(), String>) -> i32 {
    // With SIGPIPE ignored, a write to a closed pipe fails with EPIPE, which can be reported. `ignore_sigpipe` fails
    // only for signals that do not exist.
    let _ = signal::ignore_sigpipe();
    match run() {
        Ok(()) => 0,
        Err(reason) => {
            eprintln!("thalweg helper {kind}: {reason}");
            1
        }
    }
}

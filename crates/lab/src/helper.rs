//! Helper processes of studies, besides those of `thalweg-measure`. `thalweg-lab-helper` runs them for our tests.

use std::process::ExitCode;
use thalweg_measure::helper::{self, Helper, exit_status};

use crate::{
    arms::{
        CATALOGUE, Catalogue,
        far::{feeder, receiver},
    },
    libc_thresholds,
    study::session,
};

pub static HELPERS: &[Helper] = &[
    ("feeder", feeder::run),
    ("memcpy", libc_thresholds::child::main),
    ("receiver", receiver::run),
    ("session", |_| session::main(&CATALOGUE)),
];

/// Runs the helper that the first argument names, and returns the exit status.
pub fn run(arguments: &[String]) -> i32 {
    helper::run(&[helper::HELPERS, HELPERS], arguments)
}

/// Like [`run`], but sessions use another catalogue of works and probes. Our tests add faulty ones.
pub fn main_with(catalogue: &Catalogue, arguments: &[String]) -> ExitCode {
    let status = match arguments {
        [kind] if kind == "session" => exit_status(kind, || session::main(catalogue)),
        arguments => run(arguments),
    };
    ExitCode::from(status as u8)
}

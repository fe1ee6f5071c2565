//! `thalweg helper` for the tests of this crate, which cannot build the `thalweg` binary.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> =
        std::env::args().skip(1).skip_while(|word| word == "helper").collect();
    thalweg_lab::helper::main(&arguments)
}

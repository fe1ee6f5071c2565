//! `thalweg helper` for the tests of this crate, which cannot build the `thalweg` binary. It includes works with
//! planted faults.
#![forbid(unsafe_code)]

use std::process::ExitCode;

mod works;

fn main() -> ExitCode {
    // The first argument is the command, as for the `thalweg` binary; some callers omit it.
    let arguments: Vec<String> =
        std::env::args().skip(1).skip_while(|word| word == "helper").collect();
    thalweg_lab::helper::main_with(&works::PLANTED, &arguments)
}

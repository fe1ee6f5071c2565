//! Tests failed allocations: every call returns an error, or ends the process by abort(3) after a message.

use crate::support::{compile_with, root};
use std::{
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Command, Output},
};
use thalweg_testing::from_env;

const SCENARIOS: [&str; 4] = ["channel", "bulk", "copy", "region"];
/// The functions of the C library that the program in `c/oom.c` replaces.
const WRAPPED: [&str; 5] = ["malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc"];
const SIGABRT: i32 = 6;

fn run(program: &Path, folder: &Path, scenario: &str, failing: u64, stays: bool) -> Output {
    let mut command = Command::new(program);
    command.args([scenario, &failing.to_string(), if stays { "1" } else { "0" }]).arg(folder);
    // Disable backtraces, because resolving their addresses takes long.
    command.env("RUST_BACKTRACE", "0").env("THALWEG_NO_PROFILE", "1").output().unwrap()
}

/// In each scenario, about `THALWEG_ALLOCATIONS` allocations fail, one per run. They are spread evenly over all of its
/// allocations.
#[test]
fn an_allocation_that_fails_is_an_error_or_a_clean_abort() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("oom");
    let wraps = WRAPPED.map(|name| format!("-Wl,--wrap={name}"));
    compile_with(&wraps, &root().join("tests/c/oom.c"), &program);
    let most = from_env("THALWEG_ALLOCATIONS", 25);
    let mut aborts = 0;
    for scenario in SCENARIOS {
        let whole = run(&program, folder.path(), scenario, 0, false);
        assert!(whole.status.success(), "{scenario}: {whole:?}");
        let count: u64 = String::from_utf8(whole.stdout).unwrap().trim().parse().unwrap();
        for failing in (1..=count).step_by((count / most).max(1) as usize) {
            for stays in [false, true] {
                let ran = run(&program, folder.path(), scenario, failing, stays);
                let said = String::from_utf8_lossy(&ran.stderr).into_owned();
                let is_abort = ran.status.signal() == Some(SIGABRT);
                aborts += u32::from(is_abort);
                assert!(
                    ran.status.success() || is_abort && said.contains("memory allocation of"),
                    "{scenario}, allocation {failing} of {count}, {stays}: {}: {said}",
                    ran.status
                );
            }
        }
    }
    assert!(aborts > 0, "no allocation failed");
}

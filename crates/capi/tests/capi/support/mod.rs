//! Common code of the tests in C: the archive, the compiler, and counted skips.
#![allow(dead_code, unused_imports, reason = "each test binary uses its part")]

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Output},
};

pub mod guide;
pub use thalweg_testing::skip;

const SYSTEM: [&str; 6] = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"];

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the path of the C library. Cargo builds it together with this test binary, in the same directory, under a
/// name with a hash.
pub fn archive() -> PathBuf {
    let binary = env::current_exe().expect("the path of this binary");
    let folder = binary.parent().expect("its directory").read_dir().expect("its directory");
    let archives = folder.map(|entry| entry.expect("an entry").path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libthalweg_c-") && name.ends_with(".a")
    });
    // Builds with other features leave their archives in this directory, so use the newest one.
    let built =
        |path: &PathBuf| path.metadata().and_then(|found| found.modified()).expect("its time");
    archives.max_by_key(built).expect("libthalweg_c-*.a beside this binary")
}

pub fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {text}", output.status);
    output
}

/// Compiles a C program against the header and the archive. Every warning is an error. `make test` sets THALWEG_LINK to
/// the options of a faster linker.
pub fn compile(source: &Path, to: &Path) {
    compile_with(&[], source, to);
}

/// Compiles like [`compile`], with additional options.
pub fn compile_with(options: &[String], source: &Path, to: &Path) {
    let include = root().join("include");
    let linker = env::var("THALWEG_LINK").unwrap_or_default();
    run(Command::new("cc")
        .args(linker.split_whitespace())
        .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"])
        .arg(include)
        .args(options)
        .arg(source)
        .arg(archive())
        .args(SYSTEM)
        .arg("-o")
        .arg(to));
}

pub fn is_installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

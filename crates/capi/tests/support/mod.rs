//! Shared by the tests in C: the archive, the compiler, and skips that are counted.
#![allow(dead_code, unused_imports, reason = "each test binary uses its part")]

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
};

#[path = "../../../cli/tests/support/skip.rs"]
mod counted;
pub mod guide;
pub use counted::skip;

const SYSTEM: [&str; 6] = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"];

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// libthalweg.a, built by cargo: for a test of the whole workspace cargo makes the rlib alone.
pub fn archive() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        run(Command::new(cargo)
            .args(["build", "--locked", "--quiet", "--package", env!("CARGO_PKG_NAME")])
            .arg("--manifest-path")
            .arg(root().join("Cargo.toml"))
            .arg("--target-dir")
            .arg(Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target folder")));
        Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("debug").join("libthalweg.a")
    };
    BUILT.get_or_init(build).clone()
}

pub fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {text}", output.status);
    output
}

/// Compiles a C program against the header and the archive, every warning an error.
pub fn compile(source: &Path, to: &Path) {
    let include = root().join("include");
    run(Command::new("cc")
        .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"])
        .arg(include)
        .arg(source)
        .arg(archive())
        .args(SYSTEM)
        .arg("-o")
        .arg(to));
}

pub fn is_installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

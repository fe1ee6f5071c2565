//! Creates programs for the tests of several crates. A separate process writes each program. If this process wrote the
//! file, a child started by another thread could briefly inherit its descriptor. While any process has the file open
//! for writing, the kernel refuses to execute it (ETXTBSY).

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Copies a program.
pub fn executable(from: &Path, to: &Path) {
    let copied = Command::new("install").args(["-m", "755"]).args([from, to]).status();
    assert!(copied.is_ok_and(|status| status.success()), "{} cannot be copied", from.display());
}

/// Writes a script for `sh`.
pub fn script(to: &Path, text: &str) {
    let write = r#"printf '#!/bin/sh\n%s\n' "$2" >"$1" && chmod 755 "$1""#;
    let written = Command::new("sh").args(["-c", write, "sh"]).arg(to).arg(text).status();
    assert!(written.is_ok_and(|status| status.success()), "{} cannot be written", to.display());
}

/// Returns the path of an example, which `cargo test` builds along with the tests.
///
/// # Panics
/// If the example was not built, as with `cargo test --test NAME`.
pub fn example(name: &str) -> PathBuf {
    let binary = std::env::current_exe().expect("the path of this binary");
    let built = binary.parent().expect("its directory").with_file_name("examples").join(name);
    assert!(
        built.exists(),
        "{} does not exist: `cargo build --examples` builds it",
        built.display()
    );
    built
}

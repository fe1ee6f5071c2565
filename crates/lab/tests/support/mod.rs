//! Skips that are counted; shared by the test binaries of this crate.

use std::{fs::OpenOptions, io::Write};

/// One line in the file that `make test` prints at its end.
pub fn skip(test: &str, reason: &str) {
    eprintln!("skipped: {test}: {reason}");
    if let Some(path) = std::env::var_os("THALWEG_SKIPS") {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let mut file = file.expect("the file THALWEG_SKIPS names");
        file.write_all(format!("{test}: {reason}\n").as_bytes()).expect("a line in THALWEG_SKIPS");
    }
}

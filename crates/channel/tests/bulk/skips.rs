//! What could not be tried here, said once and counted.

use std::{
    collections::BTreeSet,
    fs::OpenOptions,
    io::Write,
    sync::{Mutex, PoisonError},
};

static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Notes that something did not run, and why: to standard error, and to the file `THALWEG_SKIPS`
/// names. The same words are noted once.
pub fn skip(what: &str, reason: &str) {
    let line = format!("bulk {what}: {reason}");
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if !said.insert(line.clone()) {
        return;
    }
    eprintln!("skipped: {line}");
    let Some(path) = std::env::var_os("THALWEG_SKIPS") else { return };
    let file = OpenOptions::new().create(true).append(true).open(path);
    let _ = file.and_then(|mut file| writeln!(file, "{line}"));
}

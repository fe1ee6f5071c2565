//! Studies for tests. They run for real with planted faults, or are simulated with known true
//! costs.
#![allow(dead_code)] // Not every test binary uses all of it.

pub mod simulated;
// The file is in `src/bin`, because the helper binary needs it too, and the package of this crate
// contains no tests.
#[path = "../../../src/bin/thalweg-lab-helper/works.rs"]
pub mod works;

use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};
use thalweg_lab::study::{
    file::StudyFile,
    result::StudyResult,
    run::{RunError, RunStage, run},
    settings::Settings,
    store::Loaded,
};
use thalweg_measure::preset::Preset;

/// The binary whose sessions know the planted works.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_thalweg-lab-helper");

/// Returns a study of these arms in one cell; the first arm is the reference. `rest` contains
/// further tables.
pub fn text(arms: &[(&str, &str)], size: &str, rest: &str) -> String {
    let names: Vec<String> = arms.iter().map(|(name, _)| format!("{name:?}")).collect();
    let mut text = format!(
        "schema = 1\nid = \"test\"\ntitle = \"a test\"\nsummary = \"of the lab\"\n\
         [source]\ntitle = \"nothing\"\n\
         [[cell]]\nname = \"cell\"\nsizes = [{size:?}]\narms = [{}]\n",
        names.join(", ")
    );
    for (name, with) in arms {
        let arm = format!("[[arm]]\nname = {name:?}\nwork = \"copy\"\n{with}\n");
        text.push_str(&arm);
    }
    text + rest
}

/// Parses a study with arms of [`works::PLANTED`], which have deliberate faults.
pub fn study(text: &str) -> StudyFile {
    StudyFile::parse(text, &works::PLANTED).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// Returns the settings of the shortest run that has intervals.
pub fn settings(sessions: usize, rounds: usize) -> Settings {
    Settings {
        sessions,
        rounds,
        pause: Duration::ZERO,
        sample: Duration::from_millis(1),
        command: "thalweg study test".to_owned(),
        ..Settings::of(Preset::QUICK, 1)
    }
}

/// Runs a study in fresh processes.
pub fn really(text: &str, settings: &Settings) -> Result<StudyResult, RunError> {
    really_by(Path::new(PROGRAM), text, settings)
}

/// Like [`really`], but sessions run in another program.
pub fn really_by(program: &Path, text: &str, settings: &Settings) -> Result<StudyResult, RunError> {
    let folder = tempfile::tempdir().expect("a scratch folder");
    in_folder(folder.path(), program, text, settings)
}

/// Like [`really_by`], for a program that switches to the user `nobody`. Every user may write to
/// its directory.
pub fn as_nobody(program: &Path, text: &str, settings: &Settings) -> StudyResult {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let open = || fs::Permissions::from_mode(0o777);
    fs::set_permissions(folder.path(), open()).expect("it is ours");
    // This process creates the directories of the sessions. With an empty umask, the user
    // `nobody` can write to them too.
    let old = rustix::process::umask(rustix::fs::Mode::empty());
    let answer = in_folder(folder.path(), program, text, settings);
    rustix::process::umask(old);
    answer.unwrap_or_else(|e| panic!("{e}"))
}

fn in_folder(
    folder: &Path,
    program: &Path,
    text: &str,
    settings: &Settings,
) -> Result<StudyResult, RunError> {
    let loaded =
        Loaded { study: study(text), text: text.to_owned(), path: folder.join("test.toml") };
    let mut stage =
        RunStage { program, at: folder, stop: &|| Ok(()), watch: &mut |_| {}, unfinished: None };
    let answer = run(&[loaded], settings, &mut stage).pop().expect("one answer");
    let left: Vec<_> = fs::read_dir(folder).expect("it is there").collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    answer
}

pub use thalweg_testing::skip;

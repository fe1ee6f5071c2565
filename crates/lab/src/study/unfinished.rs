//! Sessions of a run that has not finished. They are saved as each session ends, so that the same command continues
//! the run after an interrupt or a crash.

use serde::{Deserialize, Serialize};
use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};
use thalweg_core::trusted_file::{self, TrustError};

use super::{
    messages::SessionLog,
    settings::Settings,
    store::{LARGEST_RESULT, Loaded},
};
use thalweg_measure::conditions::Conditions;

/// The saved sessions of one study under one set of parameters on this machine.
#[derive(Clone, Debug)]
pub struct UnfinishedRun {
    folder: PathBuf,
}

/// One saved session.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct SavedSession {
    /// The start time of the run (RFC 3339).
    pub began: String,
    /// Seed of the run.
    pub seed: u64,
    /// Conditions at the start of the run.
    pub conditions: serde_json::Value,
    /// Wall time of the run until the end of this session, in seconds. It excludes the time between the commands that
    /// continue the run.
    pub took_seconds: f64,
    pub log: SessionLog,
}

impl UnfinishedRun {
    /// Returns the run that these parameters identify. `root` is the directory for all unfinished runs, `program` the
    /// binary that runs the sessions, and `at` the directory under test.
    pub fn of(
        root: &Path,
        loaded: &Loaded,
        settings: &Settings,
        program: &Path,
        at: &Path,
    ) -> Self {
        let identity = identity(loaded, settings, program, at);
        let hash = thalweg_kernels::xxh3(identity.as_bytes());
        Self { folder: root.join(format!("{}-{hash:016x}", loaded.study.id)) }
    }

    /// Returns the saved sessions from the first one up to the first that is missing, unusable, or has another seed.
    /// The seed is `seed`, or that of the first session if `seed` is `None`.
    pub fn sessions(&self, seed: Option<u64>) -> Vec<SavedSession> {
        if trusted_file::check_directory(&self.folder).is_err() {
            return Vec::new();
        }
        let mut found: Vec<SavedSession> = Vec::new();
        while let Some(one) = read(&self.path(found.len())) {
            let seed = seed.or(found.first().map(|first| first.seed));
            if one.log.session != found.len() || seed.is_some_and(|seed| seed != one.seed) {
                break;
            }
            found.push(one);
        }
        found
    }

    /// Saves a session atomically.
    pub fn save(&self, session: &SavedSession) -> Result<(), TrustError> {
        let path = self.path(session.log.session);
        let text = serde_json::to_vec(session).map_err(|error| TrustError::Io {
            path: path.clone(),
            call: "write",
            source: io::Error::other(error),
        })?;
        trusted_file::write(&path, &text)
    }

    /// Removes all sessions, and the directories that are empty then.
    pub fn remove(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // This fails if the directory contains other unfinished runs.
        let _ = self.folder.parent().map(fs::remove_dir);
        Ok(())
    }

    fn path(&self, session: usize) -> PathBuf {
        self.folder.join(format!("session-{session}.json"))
    }
}

fn read(path: &Path) -> Option<SavedSession> {
    let file = trusted_file::open(path).ok()??;
    let mut text = Vec::new();
    file.take(LARGEST_RESULT).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Returns a text that differs if sessions cannot be combined: study, programs, parameters, machine and binary. The
/// seed is not part of it, because a command without `--seed` continues with the seed of the unfinished run.
fn identity(loaded: &Loaded, settings: &Settings, program: &Path, at: &Path) -> String {
    let sources = loaded.study.arms.iter().filter_map(|arm| arm.with.get("program")?.as_str());
    let sources = sources.filter_map(|name| fs::read(loaded.beside().join(name)).ok());
    let sources: Vec<u64> = sources.map(|bytes| thalweg_kernels::xxh3(&bytes)).collect();
    let binary = fs::metadata(program).ok().map(|meta| (meta.len(), meta.modified().ok()));
    let now = Conditions::now(&[at]);
    let machine = (&now.machine, &now.governor, &now.settings, &now.file_systems);
    let at = at.canonicalize().unwrap_or_else(|_| at.to_owned());
    let Settings { sessions, rounds, pause, sample, pinned, only, sizes, .. } = settings;
    let settings = (sessions, rounds, pause, sample, pinned, only, sizes);
    format!(
        "{}\n{sources:?}\n{settings:?}\n{binary:?}\n{machine:?}\n{}",
        loaded.hash(),
        at.display()
    )
}

#[cfg(test)]
mod tests;

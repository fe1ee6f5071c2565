//! The saved profile of this machine: current, absent, stale or broken.

use serde::Serialize;
use std::{
    env, fs,
    path::{Path, PathBuf},
    time::SystemTime,
};
use thalweg_channel::bulk::PROCESS;
use thalweg_core::{
    Kind, Profile,
    driver::ContestResult,
    profile::{FILL, ProfileError, Stale},
};

use crate::output::text::complain;

#[derive(Debug, Default)]
pub struct SavedProfile {
    /// Path of the profile; `None` without a home directory, or with `--no-profile`.
    pub path: Option<PathBuf>,
    /// The profile, if it matches the current state of this machine.
    pub current: Option<Profile>,
    /// The valid part of the profile: all of it, or only the copies and fills in memory, which do not depend on the
    /// CPUs that the process may use.
    pub of_memory: Option<Profile>,
    /// Reasons why an existing profile is stale.
    pub stale: Vec<Stale>,
    /// Reason why the profile could not be read.
    pub broken: Option<String>,
    // Date of the newest measurement, also in a stale profile.
    newest: Option<String>,
}

/// Kinds of transfers that a command performs and for which it reads the profile. No variant includes copies within
/// memory.
#[derive(Clone, Copy, Debug)]
pub enum Moves {
    /// Transfers between descriptors, except to sockets.
    Files,
    /// Transfers between descriptors, also to sockets.
    Streams,
    /// Transfers between descriptors, and buffers between processes.
    Buffers,
}

impl Moves {
    fn between(self, source: &str, sink: &str) -> bool {
        let is = |key: &str, kind: &str| key.split(':').next() == Some(kind);
        let is_memory = is(source, Kind::Memory.name()) || is(source, FILL);
        match self {
            _ if is_memory => false,
            Self::Files => !is(source, PROCESS) && !is(sink, Kind::Socket.name()),
            Self::Streams => !is(source, PROCESS),
            Self::Buffers => true,
        }
    }
}

impl SavedProfile {
    /// Loads the whole profile, unless `wanted` is `false`.
    pub fn find(wanted: bool) -> Self {
        let Some(path) = Profile::default_path().filter(|_| wanted) else {
            return Self::default();
        };
        let mut saved = Self { path: Some(path.clone()), ..Self::default() };
        if let Some(profile) = saved.take(Profile::load(&path)) {
            saved.of_memory = profile.clone().valid_part(&saved.stale);
            saved.current = Some(profile).filter(|_| saved.stale.is_empty());
        }
        saved
    }

    /// Adds measurements to the profile, and saves it at `path`, which must be the default path. Returns the new
    /// profile, and the reasons why the saved one was stale or broken. Locks the profile and reads it again, because
    /// another process may have saved it during the measurement.
    pub fn extend(
        path: &Path,
        teach: impl FnOnce(&mut Profile),
    ) -> Result<(Profile, Self), ProfileError> {
        let _turn = Profile::turn(path)?;
        let mut before = Self::find(true);
        let mut profile = before.current.take().unwrap_or_default();
        teach(&mut profile);
        profile.save(path)?;
        Ok((profile, before))
    }

    /// Loads the measurements that match `moves`, for a command that moves data. Reports once if the profile is
    /// broken, and continues without it.
    pub fn use_if_current(wanted: bool, moves: Moves) -> Self {
        let Some(path) = Profile::default_path().filter(|_| wanted) else {
            return Self::default();
        };
        let mut saved = Self { path: Some(path.clone()), ..Self::default() };
        let read = Profile::load_between(&path, &|source, sink| moves.between(source, sink));
        saved.current = saved.take(read).filter(|_| saved.stale.is_empty());
        if let Some(broken) = saved.broken.as_ref().filter(|_| is_expected(&path)) {
            complain(&format!("warning: {broken}; the profile is ignored"));
        }
        saved
    }

    /// Returns the profile that was read, and stores the reasons why it is stale or broken.
    fn take(&mut self, read: Result<Option<Profile>, ProfileError>) -> Option<Profile> {
        match read {
            Ok(found) => {
                let profile = found?;
                self.stale = profile.stale();
                self.newest = profile.cells.iter().map(|cell| cell.at.clone()).max();
                Some(profile)
            }
            Err(error) => {
                self.broken = Some(error.to_string());
                None
            }
        }
    }

    /// Saves which mechanisms were much slower in this copy than in their measurement. Removes the observations of
    /// earlier copies that this copy contradicts.
    pub fn learn(&self, looks: &[ContestResult]) {
        let Some(path) = self.path.as_ref().filter(|_| looks.iter().any(ContestResult::teaches))
        else {
            return;
        };
        let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        // A broken profile was already reported.
        if self.broken.is_some() || !path.exists() {
            return;
        }
        let kept = Profile::turn(path).and_then(|_turn| {
            // Loads the profile again, because another command may have saved it in the meantime.
            let Ok(Some(mut profile)) = Profile::load(path) else { return Ok(()) };
            let holding = looks.iter().filter_map(|look| look.holds.as_ref());
            let forgot = holding.filter(|cell| profile.forget(cell)).count() > 0;
            let learnt = profile.learn(looks.iter().flat_map(|look| &look.seen), &now);
            if forgot || learnt { profile.save(path) } else { Ok(()) }
        });
        if let Err(error) = kept {
            complain(&format!("warning: cannot update the profile: {error}"));
        }
    }

    /// Describes the state in one line.
    pub fn describe(&self) -> String {
        let Some(path) = &self.path else { return "not used".to_owned() };
        let path = path.display();
        let dated = |newest: &Option<String>| {
            newest.as_ref().map_or("empty".to_owned(), |at| format!("newest entry {at}"))
        };
        match (&self.current, &self.broken) {
            (Some(profile), _) => {
                format!("{path}: {} entries, {}", profile.cells.len(), dated(&self.newest))
            }
            (None, Some(broken)) => format!("not used: {broken}"),
            (None, None) if self.stale.is_empty() => {
                "none; run `thalweg tune` to create it".to_owned()
            }
            (None, None) => {
                let stale: Vec<String> = self.stale.iter().map(ToString::to_string).collect();
                format!("{path}: stale ({}), {}", stale.join("; "), dated(&self.newest))
            }
        }
    }

    /// Returns the state for JSON output.
    pub fn status(&self) -> ProfileStatus<'_> {
        ProfileStatus {
            path: self.path.as_deref().map(|path| path.to_string_lossy().into_owned()),
            state: match (&self.current, &self.broken) {
                (Some(_), _) => "current",
                (None, Some(_)) => "broken",
                (None, None) if self.stale.is_empty() => "absent",
                (None, None) => "stale",
            },
            entries: self.current.as_ref().map_or(0, |profile| profile.cells.len()),
            newest: self.newest.as_deref(),
            stale: &self.stale,
            broken: self.broken.as_deref(),
        }
    }
}

/// Returns `false` if the default path cannot be examined, for example because this user may not enter the home
/// directory. In this case thalweg prints no warning, because there may be no profile.
fn is_expected(path: &Path) -> bool {
    env::var_os("THALWEG_PROFILE").is_some() || fs::symlink_metadata(path).is_ok()
}

/// The state of the profile.
#[derive(Debug, Serialize)]
pub struct ProfileStatus<'s> {
    path: Option<String>,
    state: &'static str,
    entries: usize,
    newest: Option<&'s str>,
    stale: &'s [Stale],
    broken: Option<&'s str>,
}

//! `thalweg study --extend`: adds the sessions of a run to a saved result.

use std::path::{Path, PathBuf};
use thalweg_lab::study::{
    extend,
    result::StudyResult,
    store::{self, Loaded},
};

use crate::{
    exit::{CommandFailure, Exit},
    output::text::note,
};

/// The result that grows, and its study.
pub struct ExtendedResult<'s> {
    path: PathBuf,
    by: &'s Loaded,
}

impl<'s> ExtendedResult<'s> {
    /// Reads the result, and checks that the sessions of a run of these studies on this machine can be added to it.
    pub fn open(
        path: &Path,
        studies: &'s [Loaded],
        at: &Path,
        pinned: &[usize],
    ) -> Result<Self, CommandFailure> {
        let usage =
            |reason: String| CommandFailure::new(Exit::Usage, format!("--extend: {reason}"));
        let [by] = studies else {
            return Err(usage("a result belongs to one study; name only this study".to_owned()));
        };
        let saved = store::load(path).map_err(|e| usage(e.to_string()))?;
        match extend::obstacle(&by.study, &saved, at, pinned) {
            Some(why) => Err(usage(format!("{}: {why}", path.display()))),
            None => Ok(Self { path: path.to_owned(), by }),
        }
    }

    /// Adds the sessions of `more` to the result, and saves it. Returns the judged result. Changes nothing if the result
    /// has these sessions already.
    pub fn add(&self, more: StudyResult) -> Result<StudyResult, CommandFailure> {
        let failed = |e: store::ResultError| CommandFailure::new(Exit::Failed, e.to_string());
        // The run may have taken hours, in which another command may have changed the result.
        let saved = store::load(&self.path).map_err(failed)?;
        if extend::has_sessions_of(&saved, &more) {
            note(&format!("{} has the sessions of this run already", self.path.display()));
            return Ok(saved);
        }
        let result = extend::extend(self.by, &saved, more);
        store::replace(&self.path, &result).map_err(failed)?;
        note(&format!("added to {}", self.path.display()));
        Ok(result)
    }
}

//! Runs that were interrupted: the same command continues them.

use std::path::{Path, PathBuf};
use thalweg_core::trusted_file::check_place;
use thalweg_lab::study::{
    result::StudyResult,
    settings::Settings,
    store::{self, Loaded},
    unfinished::UnfinishedRun,
};

use super::StudyArgs;
use crate::output::{
    quantity,
    text::{self, complain, note},
};

/// The binary that runs the sessions, and the directory under test.
#[derive(Clone, Copy)]
pub struct RunPlace<'p> {
    pub program: &'p Path,
    pub at: &'p Path,
}

/// The unfinished runs of the studies of a command.
pub struct UnfinishedStudies {
    /// The directory of all unfinished runs; `None` if sessions cannot or must not be saved.
    root: Option<PathBuf>,
    runs: Vec<KeptStudy>,
}

struct KeptStudy {
    study: String,
    run: UnfinishedRun,
}

impl UnfinishedStudies {
    /// Finds the unfinished runs, and reports those that this command continues. Without `--seed`, stores the seed of
    /// the first unfinished run in `settings`. With `--fresh`, removes them all.
    pub fn open(
        args: &StudyArgs,
        studies: &[Loaded],
        settings: &mut Settings,
        place: RunPlace<'_>,
    ) -> Self {
        let root = store::unfinished_folder().filter(|_| !args.no_save);
        let usable = root.as_ref().map(|root| check_place(&root.join("run")));
        if let Some(Err(error)) = usable {
            complain(&format!("warning: interrupted runs cannot be saved or resumed: {error}"));
            return Self { root: None, runs: Vec::new() };
        }
        let runs = studies.iter().filter_map(|loaded| {
            let root = root.as_ref()?;
            let run = UnfinishedRun::of(root, loaded, settings, place.program, place.at);
            Some(KeptStudy { study: loaded.study.id.clone(), run })
        });
        let found = Self { runs: runs.collect(), root };
        if args.fresh {
            found.runs.iter().for_each(KeptStudy::remove);
        }
        if args.seed.is_none() {
            let first = found.runs.iter().find_map(|one| one.run.sessions(None).into_iter().next());
            settings.seed = first.map_or(settings.seed, |first| first.seed);
        }
        for KeptStudy { study, run } in &found.runs {
            let sessions = run.sessions(Some(settings.seed));
            if let Some(first) = sessions.first() {
                note(&format!(
                    "{study}: continuing the run of {}: {} of {} sessions done",
                    first.began,
                    sessions.len(),
                    settings.sessions
                ));
            }
        }
        found
    }

    /// Returns the directory of all unfinished runs.
    pub fn root(&self) -> Option<&Path> {
        self.root.as_deref()
    }

    /// Removes the sessions of a run after its result is saved.
    pub fn remove(&self, result: &StudyResult) {
        self.runs.iter().filter(|one| one.study == result.study).for_each(KeptStudy::remove);
    }

    /// Prints how many finished sessions are saved, and that the same command continues.
    pub fn hint(&self, settings: &Settings) {
        let saved = self.runs.iter().map(|one| one.run.sessions(Some(settings.seed)).len());
        let saved: usize = saved.sum();
        if saved > 0 {
            let sessions = quantity::count(saved as u64, "session is", "sessions are");
            text::hint(&format!(
                "{sessions} kept; run the same command again to continue, or with --fresh to start over"
            ));
        }
    }
}

impl KeptStudy {
    fn remove(&self) {
        if let Err(error) = self.run.remove() {
            complain(&format!(
                "warning: cannot remove an unfinished run of {}: {error}",
                self.study
            ));
        }
    }
}

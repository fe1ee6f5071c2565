//! Checks before the first run of a study that its programs exist and every arm (a compared variant) opens. The text of
//! the study was already validated when it was parsed. Nothing is measured.

use std::{fs, path::Path};
use thalweg_core::quantity::parse_some_bytes;

use super::store::Loaded;
use crate::arms::{ArmJob, Catalogue};
use thalweg_measure::scratch::ScratchFolder;

/// Problems that a run of the study would meet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rehearsal {
    /// Requirements that this machine does not meet, for example a program that does not build or a file system that
    /// is not mounted.
    pub missing: Vec<String>,
}

impl Rehearsal {
    /// Opens every arm of every cell (arms that are compared with each other) once, in a temporary directory below
    /// `at`.
    pub fn of(
        loaded: &Loaded,
        catalogue: &Catalogue,
        program: &Path,
        at: &Path,
    ) -> Result<Self, String> {
        let failed = |e| format!("{}: {e}", at.display());
        let scratch = ScratchFolder::named(at, "study").map_err(failed)?;
        let (studies, none) = (loaded.beside(), toml::Table::new());
        let (scratch, studies) = (scratch.path(), studies.as_path());
        let job = ArmJob { arm: "", with: &none, bytes: 0, scratch, studies, program };
        let mut found = Self::default();
        found.arms(loaded, catalogue, job)?;
        Ok(found)
    }

    /// Records each reason once, with all cells to which it applies.
    fn arms(
        &mut self,
        loaded: &Loaded,
        catalogue: &Catalogue,
        job: ArmJob<'_>,
    ) -> Result<(), String> {
        let study = &loaded.study;
        let mut missing = FoundProblems::default();
        for cell in &study.cells {
            for name in &cell.arms {
                let Some(arm) = study.arms.iter().find(|arm| arm.name == *name) else { continue };
                let Some(kind) = catalogue.arm_kind(&arm.work) else { continue };
                let with = cell.parameters(arm);
                let bytes = cell.sizes.first().map_or(Ok(0), |size| parse_some_bytes(size))?;
                // As in a run, each arm gets its own directory, so that two arms cannot use the same file.
                let own = job.scratch.join("arm");
                fs::create_dir(&own).map_err(|e| format!("{}: {e}", own.display()))?;
                let job = ArmJob { arm: name, with: &with, bytes, scratch: &own, ..job };
                if let Err(unfit) = kind.open(&job) {
                    missing.add(&cell.name, format!("variant {name:?}: {unfit}"));
                }
                let _ = fs::remove_dir_all(&own);
            }
        }
        self.missing.extend(missing.lines());
        Ok(())
    }
}

/// Reasons in the order in which they were found, each with its cells.
#[derive(Default)]
struct FoundProblems(Vec<(String, Vec<String>)>);

impl FoundProblems {
    fn add(&mut self, cell: &str, what: String) {
        let cell = format!("{cell:?}");
        match self.0.iter_mut().find(|(known, _)| *known == what) {
            Some((_, cells)) => cells.push(cell),
            None => self.0.push((what, vec![cell])),
        }
    }

    fn lines(self) -> impl Iterator<Item = String> {
        self.0.into_iter().map(|(what, cells)| {
            let word = if cells.len() == 1 { "test case" } else { "test cases" };
            format!("{word} {}, {what}", cells.join(", "))
        })
    }
}

#[cfg(test)]
mod tests;

//! `thalweg study --check`: reports errors in study files, and the parts that would not run on this machine.

use std::{env, path::Path};
use thalweg_lab::{
    arms::CATALOGUE,
    study::{
        rehearsal::Rehearsal,
        store::{self, Loaded, StoreError},
    },
};

use super::{StudyArgs, in_folder, is_path, scratch};
use crate::{
    exit::{CommandFailure, Exit, worse},
    output::{
        quantity,
        text::{complain, print},
    },
};

/// Reads the named studies, or all in the directory of studies, opens every variant once, and reports errors.
pub fn check(args: &StudyArgs) -> Result<Exit, CommandFailure> {
    let usage = |reason: String| CommandFailure::new(Exit::Usage, reason);
    let mut all: Vec<Result<Loaded, StoreError>> = Vec::new();
    if args.studies.is_empty() {
        let folder = store::studies_folder().map_err(usage)?;
        all = Loaded::folder(&folder, &CATALOGUE).map_err(|e| usage(e.to_string()))?;
    }
    for name in &args.studies {
        if is_path(name) || Path::new(name).exists() {
            all.push(Loaded::read(Path::new(name), &CATALOGUE));
        } else {
            all.extend(in_folder(name)?.into_iter().map(Ok));
        }
    }
    let mut exit = Exit::Done;
    for loaded in all {
        let now = match loaded {
            Ok(loaded) => rehearse(args, &loaded)?,
            Err(error) => {
                complain(&error.to_string());
                Exit::Usage
            }
        };
        // An error in a study file applies to every machine, so it takes precedence.
        exit = if now == Exit::Usage { now } else { worse(exit, now) };
    }
    Ok(exit)
}

fn rehearse(args: &StudyArgs, loaded: &Loaded) -> Result<Exit, CommandFailure> {
    let program =
        env::current_exe().map_err(|e| CommandFailure::of_io("find", "this program", &e))?;
    let at = args.at.clone().unwrap_or_else(scratch);
    let found = Rehearsal::of(loaded, &CATALOGUE, &program, &at);
    let found = found.map_err(|reason| CommandFailure::new(Exit::Failed, reason))?;
    let (study, path) = (&loaded.study, loaded.path.display());
    for missing in &found.missing {
        complain(&format!("{path}: cannot run here: {missing}"));
    }
    print(&format!(
        "{path}: valid: {}, {}, {}\n",
        quantity::count(study.cells.len() as u64, "test case", "test cases"),
        quantity::count(study.arms.len() as u64, "variant", "variants"),
        quantity::count(study.claims.len() as u64, "claim", "claims"),
    ))?;
    Ok(args.without(found.missing.len()))
}

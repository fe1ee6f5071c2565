//! Lists the studies.

use serde_json::{Value, json};
use std::{
    fmt::Write,
    path::{Path, PathBuf},
};
use thalweg_lab::{
    arms::CATALOGUE,
    study::store::{self, Loaded, SavedResult, StoreError},
};

use crate::{
    commands::study::StudyArgs,
    exit::{CommandFailure, Exit},
    output::{
        answer::SCHEMA,
        paint, quantity,
        text::{complain, print, print_json},
        wrap,
    },
};

/// Lists every study with its newest result.
pub fn list(args: &StudyArgs, color: bool) -> Result<Exit, CommandFailure> {
    let usage = |reason: String| CommandFailure::new(Exit::Usage, reason);
    let folder = store::studies_folder().map_err(usage)?;
    let all = Loaded::folder(&folder, &CATALOGUE).map_err(|e| usage(e.to_string()))?;
    let usual = [store::results_folder(), Some(folder.join("results"))].into_iter().flatten();
    let is_trusted = |folder: &PathBuf| {
        let distrust = store::distrust(folder);
        if let Some(why) = &distrust {
            complain(&format!("warning: {why}; the results in that directory are not shown"));
        }
        distrust.is_none()
    };
    let kept: Vec<PathBuf> =
        args.save.clone().into_iter().chain(usual.filter(is_trusted)).collect();
    let mut saved: Vec<SavedResult> = kept.iter().flat_map(|folder| store::saved(folder)).collect();
    saved.sort_by(|a, b| a.began.cmp(&b.began));
    let results = |id: &str| saved.iter().filter(|one| one.study == id).collect::<Vec<_>>();
    if args.json {
        let studies: Vec<Value> = all.iter().map(|loaded| as_json(loaded, &results)).collect();
        print_json(&json!({ "studies": studies, "schema": SCHEMA }))?;
        return Ok(Exit::Done);
    }
    let mut text = String::new();
    for loaded in &all {
        match loaded {
            Ok(Loaded { study, .. }) => {
                let title = format!("{}  {}", study.id, study.title);
                let _ = writeln!(text, "{}", paint::strong(&title, color));
                text.push_str(&wrap::wrapped(&study.summary, 5));
                text.push_str(&wrap::wrapped(&known(&results(&study.id)), 5));
            }
            Err(error) => complain(&error.to_string()),
        }
    }
    if all.is_empty() {
        let _ = writeln!(
            text,
            "no studies in {}; set THALWEG_STUDIES to another directory",
            folder.display()
        );
    }
    print(&text)?;
    Ok(if all.iter().all(Result::is_ok) { Exit::Done } else { Exit::Usage })
}

/// Returns text such as `4 results; newest 2026-11-22, standard: 3 reproduced, 2 contradicted`.
fn known(results: &[&SavedResult]) -> String {
    let Some(newest) = results.last() else { return "no result yet".to_owned() };
    let day = newest.began.split('T').next().unwrap_or_default();
    let count = quantity::count(results.len() as u64, "result", "results");
    format!("{count}; newest {day}, {}: {}", newest.preset, newest.tallies.words())
}

fn as_json<'s>(
    loaded: &Result<Loaded, StoreError>,
    results: &dyn Fn(&str) -> Vec<&'s SavedResult>,
) -> Value {
    match loaded {
        Ok(Loaded { study, path, .. }) => {
            let results = results(&study.id).into_iter().map(|one| {
                json!({ "path": shown(&one.path), "began": one.began, "preset": one.preset,
                        "verdicts": one.verdicts, "tallies": one.tallies })
            });
            json!({ "id": study.id, "title": study.title, "summary": study.summary, "path": shown(path),
                    "claims": study.claims.len(), "results": results.collect::<Vec<_>>() })
        }
        Err(error) => json!({ "path": shown(&error.path), "error": error.reason }),
    }
}

/// Converts a path to text, because JSON strings must be valid Unicode.
fn shown(path: &Path) -> String {
    path.display().to_string()
}

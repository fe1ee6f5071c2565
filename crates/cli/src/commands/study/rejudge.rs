//! `thalweg study --rejudge`: evaluates saved samples with the current studies.

use serde_json::json;
use std::path::{Path, PathBuf};
use thalweg_lab::study::{
    result::{ClaimResult, ClaimVerdict, StudyResult},
    store::{self, Loaded},
    tally::Tallies,
};

use super::{StudyArgs, in_folder, tables};
use crate::{
    exit::{CommandFailure, Exit},
    output::{
        answer::SCHEMA,
        text::{complain, print, print_json},
    },
};

/// A saved result, and the same samples judged by the current study.
struct Rejudged {
    path: PathBuf,
    /// `true` if the command line names this file instead of its directory.
    is_named: bool,
    before: StudyResult,
    after: StudyResult,
    by: Loaded,
}

/// Judges the result files and the results in the directories of the command line. Prints the changed verdicts. For a
/// result file, also prints all claims, as after a run.
pub fn rejudge(args: &StudyArgs, color: bool) -> Result<Exit, CommandFailure> {
    let (mut exit, mut all) = (Exit::Done, Vec::new());
    for (path, is_named) in args.rejudge.iter().flat_map(|path| results(path)) {
        match one(path, is_named) {
            Ok(both) => all.push(both),
            Err(reason) => {
                complain(&reason);
                exit = Exit::Failed;
            }
        }
    }
    if args.json {
        let all = all.iter().map(|Rejudged { path, before, after, .. }| {
            let changes: Vec<_> = changes(before, after).collect();
            json!({ "path": path.display().to_string(), "study": after.study, "text": after.text,
                    "tallies": Tallies::of(&after.claims), "changes": changes })
        });
        print_json(&json!({ "results": all.collect::<Vec<_>>(), "schema": SCHEMA }))?;
        return Ok(exit);
    }
    for Rejudged { path, is_named, before, after, by } in &all {
        if *is_named {
            let text = if args.verbose { tables::result } else { tables::claims };
            print(&text(after, Some(&by.study), color))?;
        }
        print(&format!("{}\n  {}\n", path.display(), Tallies::of(&after.claims).words()))?;
        for change in changes(before, after) {
            print(&format!("  {change}\n"))?;
        }
    }
    Ok(exit)
}

/// Returns the result files at a path, each with `true` if the path is the file itself, not its directory.
fn results(path: &Path) -> Vec<(PathBuf, bool)> {
    if !path.is_dir() {
        return vec![(path.to_owned(), true)];
    }
    store::saved(path).into_iter().map(|saved| (saved.path, false)).collect()
}

fn one(path: PathBuf, is_named: bool) -> Result<Rejudged, String> {
    let found = store::load(&path).map_err(|e| e.to_string())?;
    let named = |reason: &str| format!("{}: {reason}", path.display());
    let studies = in_folder(&found.study).map_err(|failure| named(&failure.message))?;
    let by = studies.into_iter().find(|loaded| loaded.study.id == found.study);
    let by = by.ok_or_else(|| named(&format!("no study has the id {:?}", found.study)))?;
    let [before, after] = store::rejudge(&path, &by).map_err(|e| e.to_string())?;
    Ok(Rejudged { path, is_named, before, after, by })
}

/// Returns text such as `002.2: as published: reproduced -> as published: undecided; under modern
/// conditions: contradicted`.
fn changes<'r>(
    before: &'r StudyResult,
    after: &'r StudyResult,
) -> impl Iterator<Item = String> + 'r {
    after.claims.iter().filter_map(|now| {
        let then = before.claims.iter().find(|claim| claim.id == now.id);
        let (now_, then) = (both(now), then.map_or("not judged".to_owned(), both));
        (now_ != then).then(|| format!("{}: {then} -> {now_}", now.id))
    })
}

fn both(claim: &ClaimResult) -> String {
    let wider = claim.wider.as_ref().map(|wider| wider.verdict);
    let wider = wider.map_or(String::new(), |verdict: ClaimVerdict| {
        format!("; under modern conditions: {}", verdict.name())
    });
    format!("as published: {}{wider}", claim.verdict.name())
}

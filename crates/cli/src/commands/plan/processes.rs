//! `thalweg plan process: process:`: evaluates the mechanisms between two processes as a sender does.

use serde_json::json;
use std::{path::Path, thread};
use thalweg_channel::bulk::{Destination, Facts, MECHANISMS, Options, choose, known, words};
use thalweg_core::profile::Evidence;

use super::{Details, MORE, verdicts_json};
use crate::{
    commands::plan::PlanArgs,
    exit::{CommandFailure, Exit},
    output::{
        answer::SCHEMA,
        text::{print, print_json},
    },
    profile::SavedProfile,
};

/// Returns the facts if both arguments name processes.
pub fn facts(args: &PlanArgs) -> Option<Facts> {
    let will_loan = match args.source.to_str()? {
        "process:" => false,
        "loan:" => true,
        _ => return None,
    };
    let destination = match args.sink.to_str()? {
        "process:" => Destination::Resident,
        "fresh:" => Destination::Fresh,
        "huge:" => Destination::FreshHuge,
        _ => return None,
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let (size, free_core) = (args.size, cores > 1);
    Some(Facts { destination, will_loan, size, free_core, trusted: None })
}

/// Prints a verdict for every mechanism.
pub fn run(args: &PlanArgs, facts: &Facts, color: bool) -> Result<Exit, CommandFailure> {
    let saved = SavedProfile::find(!args.choice.no_profile);
    let profile = saved.current.as_ref();
    let needs = args.choice.needs();
    let probed = MECHANISMS.iter().filter_map(|arm| Some((arm.info().name, arm.probe().err()?)));
    let options = Options { needs, unfit: probed.collect(), ..Options::default() };
    let plan = choose(facts, &options, profile);
    let known = profile.map(|profile| known(profile, facts));
    let cite = |evidence: &Evidence| {
        known.as_ref().map_or_else(String::new, |known| words(known, evidence, facts))
    };
    if args.json {
        let name = |path: &Path| path.display().to_string();
        print_json(&json!({
            "source": { "name": name(&args.source), "kind": "process" },
            "sink": { "name": name(&args.sink), "kind": "process" },
            "needs": needs, "bytes": facts.size, "profile": saved.status(),
            "verdicts": verdicts_json(&plan, &cite), "impossible": plan.impossible,
            "schema": SCHEMA,
        }))?;
    } else {
        let details = Details { plan: &plan, size: facts.size, cite: &cite, color };
        let (ends, profile) = (facts.ends(), saved.describe());
        let head = format!("{}{ends}, two processes\nprofile: {profile}\n", details.answer());
        let is_long = args.verbose || plan.impossible.is_some();
        let rows = if is_long { details.verdicts() } else { MORE.to_owned() };
        print(&(head + &rows))?;
    }
    Ok(if plan.impossible.is_some() { Exit::Unsupported } else { Exit::Done })
}

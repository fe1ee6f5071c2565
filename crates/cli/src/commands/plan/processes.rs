//! `thalweg plan process: process:`: the arms between two processes, judged as a sender judges them.

use serde_json::json;
use std::{path::Path, sync::Arc, thread};
use thalweg_channel::bulk::{self, Destination, Facts, Figures, Options, choose};
use thalweg_core::{Guarantees, Judgement, Plan, Verdict, profile::Evidence};

use super::{answer, verdicts_json, verdicts_text};
use crate::{
    args::PlanArgs,
    exit::{Exit, Failure},
    output::{
        answer::SCHEMA,
        text::{print, print_json},
    },
    profile::Saved,
};

/// What the two words stand for, if they are of processes.
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

/// Prints a verdict for every arm.
pub fn run(args: &PlanArgs, facts: &Facts, color: bool) -> Result<Exit, Failure> {
    let saved = Saved::find(!args.choice.no_profile);
    let cells = saved.current.as_ref().map(|profile| profile.cells.as_slice());
    let figures = Figures::of_cells(cells.unwrap_or_default());
    let needs = args.choice.needs();
    let plan = plan(facts, &figures, needs);
    let cite = |evidence: &Evidence| figures.words(evidence, facts);
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
        let ends = facts.ends();
        let head = format!("{ends}, two processes\nprofile: {}\n", saved.describe());
        let answer = answer(&plan, facts.size);
        let rows = verdicts_text(&plan, (facts.size, args.verbose), &cite, color);
        print(&(answer + &head + &rows))?;
    }
    Ok(if plan.impossible.is_some() { Exit::Unsupported } else { Exit::Done })
}

fn plan(facts: &Facts, figures: &Figures, needs: Guarantees) -> Plan {
    let options =
        Options { measured: Some(Arc::new(figures.clone())), needs, ..Options::default() };
    let mut found = choose(facts, &options);
    for verdict in found.iter_mut().filter(|verdict| verdict.unfit.is_none()) {
        verdict.unfit = verdict.arm.probe().err();
    }
    found.sort_by_key(|verdict| verdict.unfit.is_some());
    let usable = || found.iter().filter(|verdict| verdict.unfit.is_none());
    let least = usable().filter_map(|verdict| verdict.cost).min_by(f64::total_cmp);
    let first = usable().next().and_then(|verdict| verdict.cost);
    let judgement = |place, verdict: &bulk::Verdict| match (&verdict.unfit, verdict.cost) {
        (Some(unfit), _) => Judgement::Unfit { reason: unfit.reason.clone() },
        (None, Some(_)) if place == 0 => Judgement::Chosen { why: "fastest measured".to_owned() },
        (None, None) if place == 0 => {
            let why = "not measured: first by what is known of it";
            Judgement::Chosen { why: why.to_owned() }
        }
        (None, Some(_)) if verdict.ties_with(least, f64::MAX) => Judgement::Tie,
        (None, Some(cost)) => Judgement::Slower { by: first.map_or(1.0, |first| cost / first) },
        (None, None) => Judgement::Unmeasured,
    };
    let judged = found.iter().enumerate().map(|(n, verdict)| Verdict {
        mechanism: verdict.arm.info().name,
        evidence: figures.evidence(facts, verdict.arm.info().name),
        judgement: judgement(n, verdict),
        tuning: verdict.tuning.clone(),
    });
    let verdicts: Vec<Verdict> = judged.collect();
    let usable = verdicts.first().is_some_and(|verdict| verdict.judgement.is_usable());
    let impossible = (!usable).then(|| "no arm works between two processes here".to_owned());
    Plan { verdicts, impossible }
}

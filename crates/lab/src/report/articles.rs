//! Lists the published articles that the studies repeat, as Markdown: the content of each, where it is
//! run, both verdicts on every machine, and the sizes that a saved run leaves out. Generates
//! docs/benchmarks/articles.md.

use std::fmt::Write;

use super::{
    claims::Badge, history, load::ReportInput, machines::ReportMachine, markdown::escaped,
    today::today, words,
};
use crate::study::{
    file::{Claim, ClaimCheck, SourceItem, StudyFile},
    result::{ClaimResult, ClaimVerdict, StudyResult},
    tally::{Tallies, VerdictTally},
};

/// Returns the page for these results. Results without a study file, and studies without an article, are left out.
pub fn articles(inputs: &[ReportInput]) -> String {
    let machines = ReportMachine::of_articles(inputs);
    let mut text = String::from(
        "# The articles, one by one\n\nMade by `thalweg report --articles` from the studies and the kept results. *As published*: with the article's \
         own programs, parameters, sizes and state of the memory; *under modern conditions*: with a fair comparison and the tools of today. \
         A cell has the letter of a machine, the verdict there, and the figure that decided, with its 95 % interval. The figure of a ratio check \
         is the cost of the first arm of the check, divided by that of the second: below 1, the first arm is faster. The figure of a probe \
         is its number ([kinds of checks](../reference/studies.md#checks)). An undecided cell has an estimate of the number of sessions that \
         would decide it, if figure and spread stay the same; without an estimate, more than 1,000 are needed, the figure lies within the noise, or the run did not measure it.\n\n",
    );
    let _ = writeln!(text, "{}", counts(inputs));
    for runs in history::by_study(inputs) {
        let Some(study) = &runs[0].study else { continue };
        if !study.source.items.is_empty() {
            article(&mut text, study, &machines);
        }
    }
    format!("{}\n", text.trim_end())
}

/// Returns the machines with their letters, and the numbers of claims by verdict as a Markdown table. The README of the
/// results contains these lines.
pub fn counts(inputs: &[ReportInput]) -> String {
    let machines = ReportMachine::of_articles(inputs);
    let mut text = String::new();
    for machine in &machines {
        let name = escaped(&machine.name);
        let _ = writeln!(text, "- **{}**: {name} ({})", machine.letter, machine.when());
    }
    text.push_str(
        "\n| machine | claims | reproduced | contradicted | undecided | not runnable |\n|---|---|---:|---:|---:|---:|\n",
    );
    for machine in machines {
        let Tallies { published, wider, .. } = machine.tallies();
        for (name, tally) in [("as published", published), ("under modern conditions", wider)] {
            if tally.all == 0 {
                continue;
            }
            let VerdictTally { reproduced, contradicted, undecided, not_runnable, all } = tally;
            let _ = writeln!(
                text,
                "| {} | {name} ({all}) | {reproduced} | {contradicted} | {undecided} | {not_runnable} |",
                machine.letter,
            );
        }
    }
    text
}

fn article(text: &mut String, study: &StudyFile, machines: &[ReportMachine<'_>]) {
    let _ = writeln!(text, "## {}: {}\n", study.id, escaped(&study.source.title));
    text.push_str("| the article has | | run in | not run, and why |\n|---|---|---|---|\n");
    for SourceItem { what, text: said, cells, arms, claims, absent } in &study.source.items {
        let places = [("cells", cells), ("arms", arms), ("claims", claims)];
        let places = places.into_iter().filter(|(_, names)| !names.is_empty());
        let places: Vec<String> =
            places.map(|(kind, names)| format!("{kind} {}", escaped(&names.join("; ")))).collect();
        let places = if places.is_empty() { "-".to_owned() } else { places.join("<br>") };
        let absent = escaped(absent.as_deref().unwrap_or("-"));
        let _ = writeln!(text, "| {} | {} | {places} | {absent} |", what.name(), escaped(said));
    }
    text.push_str("\n| claim | published | run in | as published | under modern conditions | sizes left out |\n|---|---|---|---|---|---|\n");
    for claim in study.claims.iter().filter(|claim| !claim.is_goal()) {
        let published = claim.published.as_ref().map_or("-".to_owned(), super::source::value_text);
        let of_machines = |of: &dyn Fn(&StudyResult, &ClaimResult) -> Option<String>| {
            let lines = machines.iter().filter_map(|machine| {
                let result = &machine.run(&study.id)?.result;
                let found = result.claims.iter().find(|found| found.id == claim.id)?;
                Some(format!("**{}** {}", machine.letter, escaped(&of(result, found)?)))
            });
            let lines: Vec<String> = lines.collect();
            if lines.is_empty() { "-".to_owned() } else { lines.join("<br>") }
        };
        let _ = writeln!(
            text,
            "| {}: {}{} | {} | {} | {} | {} | {} |",
            claim.id,
            escaped(&claim.text),
            quoted(claim),
            escaped(&published),
            escaped(&where_run(claim)),
            of_machines(&|_, found| {
                let figure = [found.measured, found.lo, found.hi];
                let needed = found.sessions_needed();
                let needed = needed.map_or(String::new(), |n| format!("; {n} sessions"));
                Some(said(found.verdict, figure) + &needed)
            }),
            of_machines(&|_, found| {
                let wider = found.wider.as_ref()?;
                let first = wider.evidence.first();
                let figure = first.map_or([None; 3], |e| [e.measured, e.lo, e.hi]);
                Some(said(wider.verdict, figure))
            }),
            of_machines(&|result, _| left_out(study, claim, result)),
        );
    }
    text.push('\n');
    answers_of_today(text, study, machines);
}

/// Appends the fastest methods of today, with a line for each machine and task.
fn answers_of_today(text: &mut String, study: &StudyFile, machines: &[ReportMachine<'_>]) {
    let lines = machines.iter().flat_map(|machine| {
        let run = machine.run(&study.id);
        let sentences = run.map_or_else(Vec::new, |run| today(study, &run.result));
        let line = |sentence: String| format!("- **{}** {}", machine.letter, escaped(&sentence));
        sentences.into_iter().map(line).collect::<Vec<_>>()
    });
    let lines: Vec<String> = lines.collect();
    if !lines.is_empty() {
        let _ = writeln!(text, "And today?\n\n{}\n", lines.join("\n"));
    }
}

/// Returns the words of the article, as a second line of the table cell.
fn quoted(claim: &Claim) -> String {
    let quote = claim.quote.as_ref();
    quote.map_or(String::new(), |quote| format!("<br>\"{}\"", escaped(quote)))
}

fn said(verdict: ClaimVerdict, [value, lo, hi]: [Option<f64>; 3]) -> String {
    let badge = Badge::of(verdict);
    let figure =
        words::measured(value, lo, hi).map_or(String::new(), |figure| format!(" {figure}"));
    format!("{} {}{figure}", badge.sign, badge.word)
}

/// Returns the cells and probes that decide a claim as published.
fn where_run(claim: &Claim) -> String {
    let mut places: Vec<String> = Vec::new();
    for check in &claim.checks {
        let probe = match check {
            ClaimCheck::Probe { probe, .. } => Some(format!("probe {probe}")),
            _ => None,
        };
        let cells = check.cells().into_iter().map(str::to_owned);
        places.extend(cells.chain(probe));
    }
    places.sort();
    places.dedup();
    if places.is_empty() { "not run".to_owned() } else { places.join("; ") }
}

/// Returns the sizes of a claim's cells that a run left out.
fn left_out(study: &StudyFile, claim: &Claim, result: &StudyResult) -> Option<String> {
    let mut names: Vec<&str> =
        claim.checks.iter().chain(&claim.wider).flat_map(ClaimCheck::cells).collect();
    names.sort_unstable();
    names.dedup();
    let cells = names.into_iter().filter_map(|name| study.cell(name)).filter_map(|cell| {
        let ran = |size: &&String| {
            let places = result.arms.iter().map(|arm| &arm.place);
            let places = places.chain(result.missing.iter().map(|missing| &missing.place));
            places.into_iter().any(|place| place.cell == cell.name && place.size == **size)
        };
        let sizes: Vec<&str> =
            cell.sizes.iter().filter(|size| !ran(size)).map(String::as_str).collect();
        (!sizes.is_empty()).then(|| format!("{}: {}", cell.name, sizes.join(", ")))
    });
    let cells: Vec<String> = cells.collect();
    (!cells.is_empty()).then(|| cells.join("; "))
}

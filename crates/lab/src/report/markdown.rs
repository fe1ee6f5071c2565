//! The report as Markdown, short enough for an issue.

use std::fmt::Write;
use thalweg_core::quantity::count;

use super::{claims::Badge, history, load::ReportInput, page::printable, words};
use crate::study::{
    result::{ArmResult, ClaimResult, ClaimVerdict, RatioResult, StudyResult},
    tally::Tallies,
};

/// Renders the results, newest first. Earlier runs of a study are one line with the verdicts that changed.
pub fn markdown(inputs: &[ReportInput]) -> String {
    let mut text = String::new();
    for (number, runs) in history::by_study(inputs).iter().enumerate() {
        if number > 0 {
            text.push('\n');
        }
        study(&mut text, runs);
    }
    printable(&text)
}

fn study(text: &mut String, runs: &[&ReportInput]) {
    let result = &runs[0].result;
    let protocol = &result.protocol;
    let _ = writeln!(text, "## {}: {}\n", escaped(&result.study), escaped(&result.title));
    let _ = writeln!(text, "Claims {}.  ", Tallies::of(&result.claims).words());
    let _ = writeln!(
        text,
        "{}; preset {}: {}, {} rounds each, {}; noise {}; equal arms (A/A) {}; {} comparisons.  ",
        escaped(&words::machine(result)),
        escaped(&protocol.preset),
        count(protocol.sessions as u64, "session", "sessions"),
        protocol.rounds,
        escaped(&words::moment(&protocol.began)),
        words::percent(result.noise),
        result.aa.as_ref().map_or("not sampled".to_owned(), words::ratio),
        result.comparisons,
    );
    let _ = writeln!(text, "Repeat it: {}\n", code(&protocol.command));
    claims(text, result);
    arms(text, result);
    for missing in &result.missing {
        let (arm, place) = (escaped(&missing.arm), escaped(&words::condition(&missing.place)));
        let _ = writeln!(text, "- not run: {arm} ({place}): {}", escaped(&missing.reason));
    }
    earlier(text, runs);
}

fn claims(text: &mut String, result: &StudyResult) {
    if result.claims.is_empty() {
        return;
    }
    text.push_str(
        "| claim | published | measured [95 %] | as published | under modern conditions | why |\n|---|---|---|---|---|---|\n",
    );
    for claim in &result.claims {
        let ClaimResult { id, text: said, published, reason, .. } = claim;
        let shown = |verdict: ClaimVerdict| {
            let badge = Badge::of(verdict);
            format!("{} {}", badge.sign, badge.word)
        };
        let own = if claim.is_goal() { "own goal: " } else { "" };
        let wider = claim.wider.as_ref().map_or("-".to_owned(), |wider| shown(wider.verdict));
        let figure = words::measured(claim.measured, claim.lo, claim.hi);
        let _ = writeln!(
            text,
            "| {}: {} | {} | {} | {own}{} | {wider} | {} |",
            escaped(id),
            escaped(said),
            escaped(published.as_deref().unwrap_or("-")),
            figure.unwrap_or_else(|| "-".to_owned()),
            shown(claim.verdict),
            escaped(reason),
        );
    }
    text.push('\n');
}

fn arms(text: &mut String, result: &StudyResult) {
    if result.arms.is_empty() {
        return;
    }
    text.push_str(
        "| arm | where | GB/s | CPU s/GB | wall ratio [95 %] | CPU ratio [95 %] | guarantee |\n\
         |---|---|---:|---:|---|---|---|\n",
    );
    for arm in &result.arms {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            escaped(&arm.name),
            escaped(&words::condition(&arm.place)),
            words::number(arm.gb_per_s),
            words::number(arm.cpu_s_per_gb),
            ratio(result, arm, thalweg_measure::sample::SampleMetric::Wall),
            ratio(result, arm, thalweg_measure::sample::SampleMetric::Cpu),
            words::promises(arm.promises),
        );
    }
    text.push('\n');
}

fn ratio(
    result: &StudyResult,
    arm: &ArmResult,
    metric: thalweg_measure::sample::SampleMetric,
) -> String {
    let is_it = |r: &&RatioResult| r.a == arm.name && r.place == arm.place && r.metric == metric;
    result.ratios.iter().find(is_it).map_or("reference".to_owned(), |found| {
        let dagger = if found.same_promises { "" } else { ", other guarantee" };
        format!("{} {}{dagger}", words::ratio(&found.ratio), words::comparison(found.verdict))
    })
}

fn earlier(text: &mut String, runs: &[&ReportInput]) {
    let Some(table) = history::table(runs) else { return };
    let stable = table.rows.iter().filter(|row| row.last().is_some_and(|c| c.text == "stable"));
    let _ = writeln!(
        text,
        "\n{}, {} of {} verdicts stable.",
        count(runs.len() as u64, "run", "runs"),
        stable.count(),
        table.rows.len()
    );
    for row in table.rows.iter().filter(|row| row.last().is_some_and(|c| c.class == "open")) {
        let all: Vec<&str> = row[1..row.len() - 1].iter().map(|cell| cell.text.as_str()).collect();
        let _ = writeln!(text, "- {}: {} (newest first)", escaped(&row[0].text), all.join(", "));
    }
}

/// Escapes text for a table in an issue: no markup, no mention, no end of the table cell.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' | '\t' => safe.push(' '),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            // A mention would notify people, and a reference would create a link.
            '@' | '#' => {
                safe.push_str(if c == '@' { "&#64;" } else { "&#35;" });
            }
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '!' => {
                safe.push('\\');
                safe.push(c);
            }
            c => safe.push(c),
        }
    }
    safe
}

/// Returns a command as inline code, with as many backticks around it as it needs.
fn code(text: &str) -> String {
    let text = text.replace(['\n', '\r'], " ");
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let space = if longest > 0 { " " } else { "" };
    format!("{fence}{space}{text}{space}{fence}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text() {
        assert_eq!(escaped("a|b\n<i>*@me*"), "a\\|b &lt;i&gt;\\*&#64;me\\*");
        assert_eq!(code("run `x`"), "`` run `x` ``");
        assert_eq!(code("run"), "`run`");
    }
}

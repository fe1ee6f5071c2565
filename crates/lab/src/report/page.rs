//! The HTML pages: the templates and their data.

use minijinja::{
    AutoEscape, Environment, context,
    syntax::SyntaxConfig,
    value::{Serde, Value},
};
use serde::Serialize;
use serde_json::Value as Json;

use super::{
    answers,
    cards::cards,
    cell_charts::{self, CellView},
    chart::Scope,
    claims::{self, ClaimView},
    history,
    load::{ReportError, ReportInput},
    overview::overview,
    palette::{DARK, LIGHT},
    source::{self, SourceView},
    table::{ReportTable, TableCell},
    winners, words,
};
use crate::study::{
    result::{Protocol, StudyResult},
    tally::Tallies,
};

/// The drawings of a study for templates.
#[derive(Clone, Debug, Serialize)]
struct DrawingsView {
    anchor: String,
    study: String,
    title: String,
    began: String,
    preset: String,
    machine: String,
    winners: Vec<ReportTable>,
    groups: Vec<CellView>,
}

#[derive(Clone, Debug)]
pub struct Drawings {
    /// The file name: the id of the study if it is a plain word.
    pub name: String,
    pub html: String,
}

/// A study for templates.
#[derive(Clone, Debug, Serialize)]
struct StudyView {
    anchor: String,
    study: String,
    title: String,
    summary: Option<String>,
    tallies: Tallies,
    began: String,
    preset: String,
    machine: String,
    source: Option<SourceView>,
    claims: Vec<ClaimView>,
    answers: Option<ReportTable>,
    missing: Option<ReportTable>,
    probes: Option<ReportTable>,
    history: Option<ReportTable>,
    protocol: Vec<(&'static str, String)>,
    conditions: Vec<(String, String)>,
    command: String,
    origin: String,
    comparisons: usize,
    by_chance: String,
}

const TEMPLATES: [(&str, &str); 6] = [
    ("page.html", include_str!("templates/page.html")),
    ("drawings.html", include_str!("templates/drawings.html")),
    ("head.html", include_str!("templates/head.html")),
    ("study.html", include_str!("templates/study.html")),
    ("parts.html", include_str!("templates/parts.html")),
    ("style.css", include_str!("templates/style.css")),
];
/// Conditions nested deeper than this are shown as JSON.
const DEEPEST: usize = 4;

/// Renders the page of these results: one file without external references.
///
/// # Errors
/// Only if a template is wrong, which is a bug.
pub fn html(inputs: &[ReportInput]) -> Result<String, ReportError> {
    let studies: Vec<StudyView> = history::by_study(inputs)
        .iter()
        .enumerate()
        .map(|(number, runs)| study_view(runs, format!("s{number}")))
        .collect();
    let (cards, overview) = (Serde(cards(inputs)), Serde(overview(inputs)));
    render(
        "page.html",
        context! { studies => Serde(studies), cards => cards, overview => overview },
    )
}

/// Renders a page of drawings for the newest run of each study: the winners, and every ratio and speed with the data
/// behind them.
///
/// # Errors
/// Only if a template is wrong, which is a bug.
pub fn drawings(inputs: &[ReportInput]) -> Result<Vec<Drawings>, ReportError> {
    let studies = history::by_study(inputs);
    let pages = studies.iter().enumerate().map(|(number, runs)| {
        let view = drawings_view(runs[0], format!("s{number}"));
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        let study = &view.study;
        let is_plain = (1..=80).contains(&study.len()) && study.chars().all(plain);
        let name = if is_plain { study.clone() } else { format!("study.{number}") };
        let html = render("drawings.html", context! { s => Serde(view) })?;
        Ok(Drawings { name: format!("{name}.html"), html })
    });
    pages.collect()
}

fn render(template: &str, of: Value) -> Result<String, ReportError> {
    let wrong = |error: minijinja::Error| ReportError::Page(format!("{error:#}"));
    let environment = environment().map_err(wrong)?;
    let page = environment.get_template(template).map_err(wrong)?;
    let text = page
        .render(context! {
            light => Serde(LIGHT), dark => Serde(DARK),
            made => thalweg_measure::conditions::now(), version => env!("CARGO_PKG_VERSION"), ..of
        })
        .map_err(wrong)?;
    Ok(printable(&text))
}

fn environment() -> Result<Environment<'static>, minijinja::Error> {
    let mut environment = Environment::new();
    // A template line that contains only a block produces no empty line in the page.
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_auto_escape_callback(|name| {
        if name == "style.css" { AutoEscape::None } else { AutoEscape::Html }
    });
    for (name, text) in TEMPLATES {
        environment.add_template(name, text)?;
    }
    Ok(environment)
}

/// Removes characters that HTML forbids, or that change the text direction.
pub fn printable(text: &str) -> String {
    let odd = |c: char| {
        (c.is_control() && c != '\n' && c != '\t')
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
            || (u32::from(c) & 0xfffe) == 0xfffe
            || ('\u{fdd0}'..='\u{fdef}').contains(&c)
    };
    text.chars().map(|c| if odd(c) { '\u{fffd}' } else { c }).collect()
}

fn drawings_view(input: &ReportInput, anchor: String) -> DrawingsView {
    let result = &input.result;
    let scope = Scope { id: &anchor, result, study: input.study.as_ref() };
    DrawingsView {
        study: result.study.clone(),
        title: result.title.clone(),
        began: words::moment(&result.protocol.began),
        preset: result.protocol.preset.clone(),
        machine: words::machine(result),
        winners: winners::maps(&scope),
        groups: cell_charts::cell_views(&scope),
        anchor,
    }
}

fn study_view(runs: &[&ReportInput], anchor: String) -> StudyView {
    let input = runs[0];
    let result = &input.result;
    let scope = Scope { id: &anchor, result, study: input.study.as_ref() };
    StudyView {
        study: result.study.clone(),
        title: result.title.clone(),
        summary: input.study.as_ref().map(|study| study.summary.clone()),
        tallies: Tallies::of(&result.claims),
        began: words::moment(&result.protocol.began),
        preset: result.protocol.preset.clone(),
        machine: words::machine(result),
        source: input.study.as_ref().map(source::of),
        claims: claims::views(&scope),
        answers: answers::table(&scope),
        missing: missing(result),
        probes: probes(result),
        history: history::table(runs),
        protocol: protocol(result),
        conditions: pairs(&result.conditions),
        command: result.protocol.command.clone(),
        origin: input.origin.clone(),
        comparisons: result.comparisons,
        by_chance: words::number(result.comparisons as f64 / 20.0),
        anchor,
    }
}

fn protocol(result: &StudyResult) -> Vec<(&'static str, String)> {
    let Protocol { preset, sessions, rounds, pause_seconds, sample_seconds, seed, pinned, .. } =
        &result.protocol;
    let more = result.protocol.extensions_text();
    let pinned: Vec<String> = pinned.iter().map(usize::to_string).collect();
    let noise = format!(
        "{}: a ratio must differ from its limit by at least this much",
        words::percent(result.noise)
    );
    let marked: usize = result.arms.iter().map(|arm| arm.marked).sum();
    let taken: usize =
        result.arms.iter().flat_map(|arm| &arm.sessions).map(|session| session.samples.len()).sum();
    vec![
        ("Preset", format!("{preset}: {sessions} fresh processes of {rounds} rounds each{more}")),
        ("Between sessions", format!("at least {}", words::duration(*pause_seconds))),
        ("Intended duration of a sample", words::duration(*sample_seconds)),
        (
            "Order",
            format!("in each round all arms in random order, one a second time; seed {seed}"),
        ),
        ("Pinned to CPUs", if pinned.is_empty() { "none".to_owned() } else { pinned.join(", ") }),
        ("Began", words::moment(&result.protocol.began)),
        ("Took", words::duration(result.protocol.took_seconds)),
        (
            "Two samples of one arm in a round, the later to the earlier one: the effect of the order (A/A)",
            result.aa.as_ref().map_or("not sampled twice".to_owned(), words::ratio),
        ),
        ("Least margin", noise),
        (
            "Harness and meter, per sample",
            result.null_seconds.map_or("not measured".to_owned(), words::duration),
        ),
        (
            "Samples",
            format!(
                "{taken}; {marked} disturbed, none left out; other processes disturbed {} of them",
                result.disturbed()
            ),
        ),
        ("Comparisons made", result.comparisons.to_string()),
    ]
}

/// Flattens conditions into names and values.
fn pairs(value: &Json) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    flatten(value, String::new(), 0, &mut pairs);
    pairs
}

fn flatten(value: &Json, name: String, depth: usize, pairs: &mut Vec<(String, String)>) {
    match value {
        Json::Object(map) if depth < DEEPEST => {
            for (key, value) in map {
                let key = key.replace('_', " ");
                let name = if name.is_empty() { key } else { format!("{name}: {key}") };
                flatten(value, name, depth + 1, pairs);
            }
        }
        Json::Array(all) => {
            let all: Vec<String> = all.iter().map(plain).collect();
            pairs.push((name, if all.is_empty() { "none".to_owned() } else { all.join("; ") }));
        }
        other => pairs.push((name, plain(other))),
    }
}

fn plain(value: &Json) -> String {
    match value {
        Json::Null => "unknown".to_owned(),
        Json::String(text) => text.clone(),
        Json::Array(all) => all.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

fn missing(result: &StudyResult) -> Option<ReportTable> {
    let mut table = ReportTable::new("Arms that could not run", &["Arm", "Where", "Why"]);
    for missing in &result.missing {
        table.row([
            TableCell::from(missing.arm.as_str()),
            words::condition(&missing.place).into(),
            missing.reason.as_str().into(),
        ]);
    }
    (!table.rows.is_empty()).then_some(table)
}

fn probes(result: &StudyResult) -> Option<ReportTable> {
    let mut table =
        ReportTable::new("What the probes found", &["Claim", "Probe", "Session", "Finding"]);
    for probe in &result.probes {
        for session in &probe.sessions {
            let found = session.finding.as_ref().map(|finding| finding.text.as_str());
            table.row([
                TableCell::from(probe.claim.as_str()),
                probe.probe.as_str().into(),
                TableCell::figure(session.session.saturating_add(1).to_string()),
                found.or(session.missing.as_deref()).unwrap_or("-").into(),
            ]);
        }
    }
    (!table.rows.is_empty()).then_some(table)
}

//! `thalweg list`: prints the registry of mechanisms.

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use serde_json::{Value, json};
use std::fmt::Write;
use thalweg_channel::bulk;
use thalweg_core::{Info, Kind, Knob, MECHANISMS, Role, quantity::Size};

use super::Subcommand;
use crate::{
    args::flag,
    exit::{CommandFailure, Exit},
    output::{
        answer::SCHEMA,
        paint, pairs,
        table::{render, table},
        text::{print, print_json},
    },
};

/// List the methods that thalweg can use
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ListArgs {
    /// Print the details of these methods
    #[arg(value_name = "NAME", conflicts_with = "json")]
    #[arg(value_parser = names(), hide_possible_values = true)]
    pub methods: Vec<String>,
    /// Print the details of all methods
    #[arg(short, long, env = "THALWEG_VERBOSE", hide_env = true, value_parser = flag())]
    pub verbose: bool,
    /// Print JSON
    #[arg(long, env = "THALWEG_JSON", hide_env = true, value_parser = flag())]
    pub json: bool,
}

const EXAMPLES: &str = "\
Examples:
  thalweg list
  thalweg list splice
  thalweg list --json | jq -r '.mechanisms[].name'";

impl Subcommand for ListArgs {
    fn run(&self, color: bool) -> Result<Exit, CommandFailure> {
        let infos = MECHANISMS.iter().map(|m| m.info());
        if self.json {
            let mechanisms: Vec<Value> = infos.map(Info::to_json).collect();
            let arms: Vec<Value> = bulk::MECHANISMS.iter().map(|arm| arm_as_json(*arm)).collect();
            print_json(&json!({ "mechanisms": mechanisms, "bulk": arms, "schema": SCHEMA }))?;
            return Ok(Exit::Done);
        }
        let all = || infos.map(|info| (info.name, info.summary));
        let between = bulk::MECHANISMS.iter().map(|arm| arm.info());
        let between = between.filter(|info| info.role == Role::Mover);
        let between_all = || between.map(|info| (info.name, info.summary));
        let text = if self.verbose || !self.methods.is_empty() {
            self.details(color)
        } else {
            format!(
                "{} methods, safest first; the first suitable one is used until you run `thalweg \
                 tune`\n\n{}\nBetween two processes (`thalweg send`):\n\n{}\n\
                 hint: `thalweg list NAME` shows the details of a method, -v of all\n",
                MECHANISMS.len(),
                one_line_each(all(), color),
                one_line_each(between_all(), color),
            )
        };
        print(&text)?;
        Ok(Exit::Done)
    }
}

impl ListArgs {
    /// Formats the details of the named methods, or of all.
    fn details(&self, color: bool) -> String {
        let is_wanted = |name: &str| {
            self.methods.is_empty() || self.methods.iter().any(|method| method == name)
        };
        let mut text = String::new();
        let mut add = |name: &str, summary: &str, facts: Vec<(&'static str, String)>| {
            let _ = writeln!(text, "{}: {summary}", paint::strong(name, color));
            let mut rows = table(&[]);
            for (fact, value) in facts {
                rows.add_row([format!("   {fact}"), value]);
            }
            text.push_str(&render(&rows));
            text.push('\n');
        };
        for info in MECHANISMS.iter().map(|m| m.info()).filter(|info| is_wanted(info.name)) {
            add(info.name, info.summary, facts_of(info));
        }
        for arm in bulk::MECHANISMS.iter().filter(|arm| is_wanted(arm.info().name)) {
            add(arm.info().name, arm.info().summary, arm_facts(*arm));
        }
        text
    }
}

/// Returns the names of all methods.
fn names() -> impl TypedValueParser<Value = String> {
    let between = bulk::MECHANISMS.iter().map(|arm| arm.info().name);
    PossibleValuesParser::new(MECHANISMS.iter().map(|m| m.info().name).chain(between))
}

/// Formats a table of names and summaries.
fn one_line_each(
    methods: impl Iterator<Item = (&'static str, &'static str)>,
    color: bool,
) -> String {
    let mut rows = table(&[]);
    for (name, summary) in methods {
        rows.add_row([name, summary]);
    }
    let strong = |line: &str| match line.split_once(' ') {
        Some((name, rest)) => {
            format!("{} {rest}\n", paint::strong(name, color && !name.is_empty()))
        }
        None => format!("{line}\n"),
    };
    render(&rows).lines().map(strong).collect()
}

/// Returns the facts about a mechanism between processes, with the result of a probe.
fn arm_facts(arm: &dyn bulk::Mechanism) -> Vec<(&'static str, String)> {
    let info = arm.info();
    let works = arm.probe().map_or_else(|why| format!("no: {why}"), |()| "yes".to_owned());
    let lent = "memory that the channel lends to the sender; data elsewhere is copied there first";
    let needs = if info.nature.wants_loan { lent } else { "" };
    let trust = if info.nature.wants_trust { "only between processes of one user" } else { "" };
    let facts = [
        ("works here", works),
        ("calls", info.calls.join(", ")),
        ("knobs", knobs(info.knobs)),
        ("source", needs.to_owned()),
        ("trust", trust.to_owned()),
        ("only with", only(info)),
    ];
    facts.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

fn arm_as_json(arm: &dyn bulk::Mechanism) -> Value {
    let info = arm.info();
    json!({
        "name": info.name, "summary": info.summary, "calls": info.calls, "gives": info.gives_in_memory(),
        "wants_loan": info.nature.wants_loan, "trusting": info.nature.wants_trust,
        "knobs": info.knobs.iter().map(Knob::to_json).collect::<Vec<_>>(),
        "on_request": info.on_request(), "unavailable": arm.probe().err().map(|why| why.reason),
    })
}

/// Returns text such as `slot: 256K, 16K (bytes of a slot); ...`.
fn knobs(knobs: &[Knob]) -> String {
    let knobs = knobs.iter().map(|knob| {
        let values: Vec<String> = knob.values.iter().map(|v| Size(*v).to_string()).collect();
        format!("{}: {} ({})", knob.name, values.join(", "), knob.summary)
    });
    knobs.collect::<Vec<_>>().join("; ")
}

/// Returns the condition under which thalweg uses a mechanism that it does not choose by default; empty for all others.
fn only(info: &Info) -> String {
    match info.role {
        Role::Mover => String::new(),
        Role::OnRequest(text) => text.to_owned(),
        Role::Harness => "measurements, because it moves no data".to_owned(),
    }
}

/// Returns the facts about a mechanism as pairs of name and value.
pub fn facts_of(info: &Info) -> Vec<(&'static str, String)> {
    let with_promise = |stable: bool, private: bool| {
        let pairs = info.pairs.iter();
        let kept = pairs.filter(|p| (p.gives.stable, p.gives.private) == (stable, private));
        let kept: Vec<(Kind, Kind)> = kept.map(|p| (p.source, p.sink)).collect();
        pairs::brief(&kept)
    };
    let facts = [
        ("calls", info.calls.join(", ")),
        ("copies", with_promise(true, true)),
        ("stable, shares pages", with_promise(true, false)),
        ("shares pages", with_promise(false, false)),
        ("private, not stable", with_promise(false, true)),
        ("knobs", knobs(info.knobs)),
        ("only with", only(info)),
    ];
    facts.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

//! `thalweg list`: prints the registry of mechanisms.

use clap::Args;
use serde_json::{Value, json};
use std::fmt::Write;
use thalweg_channel::bulk;
use thalweg_core::{Info, Kind, Knob, MECHANISMS, Role, quantity::Size};

use super::Subcommand;
use crate::{
    args::flag,
    exit::{Exit, Failure},
    output::{
        answer::SCHEMA,
        paint, pairs,
        table::{render, table},
        text::{print, print_json},
    },
};

/// Lists the mechanisms this build knows
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ListArgs {
    /// Print JSON
    #[arg(long, env = "THALWEG_JSON", hide_env = true, value_parser = flag())]
    pub json: bool,
}

const EXAMPLES: &str = "\
Examples:
  thalweg list
  thalweg list --json | jq -r '.mechanisms[].name'";

impl Subcommand for ListArgs {
    fn run(&self, color: bool) -> Result<Exit, Failure> {
        let infos = MECHANISMS.iter().map(|m| m.info());
        if self.json {
            let mechanisms: Vec<Value> = infos.map(Info::to_json).collect();
            let arms: Vec<Value> = bulk::MECHANISMS.iter().map(|arm| arm_as_json(*arm)).collect();
            print_json(&json!({ "mechanisms": mechanisms, "bulk": arms, "schema": SCHEMA }))?;
            return Ok(Exit::Done);
        }
        let mut text = format!(
            "{} mechanisms, safest first. Without measurements the first that keeps the promises is \
         used;\n`thalweg plan SRC DST` says which that is.\n\n",
            MECHANISMS.len()
        );
        for info in infos {
            text.push_str(&paint::strong(info.name, color));
            let _ = writeln!(text, ": {}", info.summary);
            let mut facts = table(&[]);
            for (name, value) in facts_of(info) {
                facts.add_row([format!("   {name}"), value]);
            }
            text.push_str(&render(&facts));
            text.push('\n');
        }
        text.push_str("Between two processes (`thalweg send`, `thalweg receive`):\n\n");
        for arm in bulk::MECHANISMS {
            let info = arm.info();
            text.push_str(&paint::strong(info.name, color));
            let _ = writeln!(text, ": {}", info.summary);
            let mut facts = table(&[]);
            for (name, value) in arm_facts(*arm) {
                facts.add_row([format!("   {name}"), value]);
            }
            text.push_str(&render(&facts));
            text.push('\n');
        }
        print(&text)?;
        Ok(Exit::Done)
    }
}

/// Returns the facts about a mechanism between processes, with the result of a probe.
fn arm_facts(arm: &dyn bulk::Mechanism) -> Vec<(&'static str, String)> {
    let info = arm.info();
    let works = arm.probe().map_or_else(|why| format!("no: {why}"), |()| "yes".to_owned());
    let lent = "memory lent to the source; anything else is copied there first";
    let needs = if info.nature.wants_loan { lent } else { "" };
    let trust = if info.nature.wants_trust { "only between processes of one user" } else { "" };
    let facts = [
        ("works here", works),
        ("calls", info.calls.join(", ")),
        ("knobs", knobs(info.knobs)),
        ("wants", needs.to_owned()),
        ("trust", trust.to_owned()),
    ];
    facts.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

fn arm_as_json(arm: &dyn bulk::Mechanism) -> Value {
    let info = arm.info();
    json!({
        "name": info.name, "summary": info.summary, "calls": info.calls, "gives": info.gives_in_memory(),
        "wants_loan": info.nature.wants_loan, "trusting": info.nature.wants_trust,
        "knobs": info.knobs.iter().map(Knob::to_json).collect::<Vec<_>>(),
        "unavailable": arm.probe().err().map(|why| why.reason),
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

/// Returns the facts about a mechanism as pairs of name and value.
pub fn facts_of(info: &Info) -> Vec<(&'static str, String)> {
    let with_promise = |stable: bool, private: bool| {
        let pairs = info.pairs.iter();
        let kept = pairs.filter(|p| (p.gives.stable, p.gives.private) == (stable, private));
        let kept: Vec<(Kind, Kind)> = kept.map(|p| (p.source, p.sink)).collect();
        pairs::brief(&kept)
    };
    let only = match info.role {
        Role::Mover => String::new(),
        Role::OnRequest(text) => text.to_owned(),
        Role::Harness => "in measurements: it moves nothing".to_owned(),
    };
    let facts = [
        ("calls", info.calls.join(", ")),
        ("copies", with_promise(true, true)),
        ("stable, shares pages", with_promise(true, false)),
        ("shares pages", with_promise(false, false)),
        ("private, not stable", with_promise(false, true)),
        ("knobs", knobs(info.knobs)),
        ("only", only),
    ];
    facts.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

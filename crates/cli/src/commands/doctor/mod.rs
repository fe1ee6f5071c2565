//! `thalweg doctor`: reports facts about this machine, and which mechanisms work on it.

#[cfg(feature = "lab")]
mod copies;
mod machine;
mod mechanisms;
mod places;

use clap::Args;
use serde_json::json;
use std::fmt::Write;
use std::path::PathBuf;
use thalweg_core::failed::quoted;
use thalweg_measure::tune_machine::sentinel;

#[cfg(not(feature = "lab"))]
use super::without_lab::copies;
use super::{Subcommand, tune::screen};
use crate::{
    args::flag,
    exit::{Exit, Failure},
    output::{
        answer::SCHEMA,
        paint,
        table::{render, table},
        text::{print, print_json},
    },
    profile::Saved,
};

/// Says what works on this machine, what does not, and why
///
/// Every mechanism is tried by its real calls, on tiny files without a name, on pipes and on
/// sockets of its own. Nothing is left behind.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DoctorArgs {
    /// Try files in this folder instead of the current one
    #[arg(long, value_name = "DIR")]
    pub at: Option<PathBuf>,
    /// Measure whether other thresholds of libc's memcpy would help, in fresh processes; some 20 s
    #[arg(long)]
    pub memcpy: bool,
    /// Name also what each mechanism cannot do, and why
    #[arg(short, long, env = "THALWEG_VERBOSE", hide_env = true, value_parser = flag())]
    pub verbose: bool,
    /// Print JSON
    #[arg(long, env = "THALWEG_JSON", hide_env = true, value_parser = flag())]
    pub json: bool,
}

const EXAMPLES: &str = "\
Examples:
  thalweg doctor
  thalweg doctor --at /mnt/data
  thalweg doctor --memcpy
  thalweg doctor --json | jq '.mechanisms[] | {name, fails}'

\"shared\" for a mechanism: after such a move the source's later changes still show in the sink.";

impl Subcommand for DoctorArgs {
    fn outlives_pipes(&self) -> bool {
        true
    }

    fn run(&self, color: bool) -> Result<Exit, Failure> {
        let here = self.at.clone().unwrap_or_else(|| PathBuf::from("."));
        if !here.is_dir() {
            return Err(Failure::new(Exit::Usage, format!("{} is no folder", quoted(&here))));
        }
        let facts = machine::facts();
        let places = places::all(&here);
        let tried = mechanisms::all(&here);
        let saved = Saved::find(true);
        let looks =
            saved.current.as_ref().map(|profile| sentinel::look(profile, &here, &|| Ok(())));
        let looks = looks.unwrap_or_default();
        let copies = copies::look(self)?;
        if self.json {
            print_json(&json!({
                "machine": machine::as_json(&facts), "places": places, "mechanisms": tried,
                "profile": saved.status(), "sentinel": looks, "memcpy": copies, "schema": SCHEMA,
            }))?;
            return Ok(Exit::Done);
        }
        let mut text = mechanisms::answer(&tried) + &format!("profile: {}\n\n", saved.describe());
        let mut section = |title: &str, body: &str| {
            let _ = writeln!(text, "{}\n{body}", paint::strong(title, color));
        };
        let mut rows = table(&[]);
        for fact in &facts {
            rows.add_row([format!("  {}", fact.name), fact.shown()]);
        }
        if saved.current.is_some() {
            let told = screen::sentinel(&looks);
            rows.add_row([
                "  sentinel".to_owned(),
                told.trim_start_matches("sentinel: ").trim_end().to_owned(),
            ]);
        }
        section("Machine", &render(&rows));
        section("Files, by place", &places::printed(&places));
        section(
            "Mechanisms, tried by their real calls",
            &mechanisms::printed(&tried, self.verbose),
        );
        section(
            "Does a later change of the source show in the sink?",
            &mechanisms::aliases_printed(&tried),
        );
        section("libc's memcpy", &copies::printed(&copies));
        print(&text)?;
        Ok(Exit::Done)
    }
}

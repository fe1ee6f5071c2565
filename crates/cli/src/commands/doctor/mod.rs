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
use thalweg_core::{failed::quoted, scratch::ScratchSite};
use thalweg_measure::tune_machine::sentinel;

#[cfg(not(feature = "lab"))]
use super::without_lab::copies;
use super::{Subcommand, tune::screen};
use crate::{
    args::flag,
    exit::{CommandFailure, Exit},
    output::{
        answer::SCHEMA,
        paint,
        table::{render, table},
        text::{print, print_json},
    },
    profile::SavedProfile,
};

/// Check which methods work on this machine
///
/// Each method is tried with its real system calls, on small unnamed files and on private pipes and sockets. Nothing is
/// left behind.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DoctorArgs {
    /// Try files in this directory instead of the current one
    #[arg(long, value_name = "DIR")]
    pub at: Option<PathBuf>,
    /// Measure whether other thresholds of libc's memcpy would help (about 20 s)
    #[arg(long)]
    pub memcpy: bool,
    /// Also print facts about the machine, and the results of each method
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

With -v, \"shared\" means that later changes of the source also change the copy.";

/// The last line without `-v`.
const MORE: &str = "hint: -v shows the machine, and which methods work between which endpoints\n";

impl Subcommand for DoctorArgs {
    fn outlives_pipes(&self) -> bool {
        true
    }

    fn run(&self, color: bool) -> Result<Exit, CommandFailure> {
        let here = self.at.clone().unwrap_or_else(|| PathBuf::from("."));
        if !here.is_dir() {
            return Err(CommandFailure::new(
                Exit::Usage,
                format!("{}: not a directory", quoted(&here)),
            ));
        }
        if let Some(unfit) = ScratchSite::at(&here).obstacle() {
            let reason = format!("{}: the methods cannot be tried here: {unfit}", quoted(&here));
            return Err(CommandFailure::new(Exit::Failed, reason)
                .hint("choose a directory in which files can be written: --at DIR"));
        }
        let facts = machine::facts();
        let places = places::all(&here);
        let tried = mechanisms::all(&here);
        let saved = SavedProfile::find(true);
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
        let mut text = mechanisms::answer(&tried) + &format!("profile: {}\n", saved.describe());
        if saved.current.is_some() {
            text += &screen::sentinel(&looks);
        }
        if self.memcpy {
            text += &copies::printed(&copies);
        }
        if !self.verbose {
            return print(&(text + MORE)).map(|()| Exit::Done);
        }
        text.push('\n');
        let mut section = |title: &str, body: &str| {
            let _ = writeln!(text, "{}\n{body}", paint::strong(title, color));
        };
        let mut rows = table(&[]);
        for fact in &facts {
            rows.add_row([format!("  {}", fact.name), fact.shown()]);
        }
        section("Machine", &render(&rows));
        section("Files, by directory", &places::printed(&places));
        section("Methods, tried with their system calls", &mechanisms::printed(&tried));
        section(
            "Do later changes of the source show in the copy?",
            &mechanisms::aliases_printed(&tried),
        );
        if !self.memcpy {
            section("memcpy of libc", &copies::printed(&copies));
        }
        print(&text)?;
        Ok(Exit::Done)
    }
}

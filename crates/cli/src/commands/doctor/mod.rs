//! `thalweg doctor`: this machine, what works on it, what does not, and why.

use serde_json::json;
use std::fmt::Write;
use std::path::PathBuf;

use crate::{
    args::DoctorArgs,
    exit::{Exit, Failure},
    output::{
        answer::SCHEMA,
        paint,
        table::{render, table},
        text::{print, print_json},
    },
    profile::Saved,
};

use super::tune::screen;
use thalweg_core::failed::quoted;
use thalweg_lab::probes::tune_machine::sentinel;

mod copies;
mod machine;
mod mechanisms;
mod places;

/// Looks, tries, prints.
pub fn run(args: &DoctorArgs, color: bool) -> Result<Exit, Failure> {
    let here = args.at.clone().unwrap_or_else(|| PathBuf::from("."));
    if !here.is_dir() {
        return Err(Failure::new(Exit::Usage, format!("{} is no folder", quoted(&here))));
    }
    let facts = machine::facts();
    let places = places::all(&here);
    let tried = mechanisms::all(&here);
    let saved = Saved::find(true);
    let looks = saved.current.as_ref().map(|profile| sentinel::look(profile, &here, &|| Ok(())));
    let looks = looks.unwrap_or_default();
    let copies = copies::look(args)?;
    if args.json {
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
    section("Mechanisms, tried by their real calls", &mechanisms::printed(&tried, args.verbose));
    section(
        "Does a later change of the source show in the sink?",
        &mechanisms::aliases_printed(&tried),
    );
    section("libc's memcpy", &copies::printed(&copies));
    print(&text)?;
    Ok(Exit::Done)
}

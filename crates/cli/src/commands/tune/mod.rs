//! `thalweg tune`: measures the machine for its profile, checks the planner, and prints constants.

use indicatif::ProgressBar;
use serde_json::json;
use std::{
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use thalweg_core::{Cancelled, Prefer, Profile, profile::Load, quantity::Size};
use thalweg_measure::tune_machine::{
    self, Depth, EndKind, EndPair, Spawned, SurveyPlan, SurveyProgress, SurveyResult,
    advice::advice,
    check::{HeldOut, are_possible, check},
    emit::emit,
    loads, rows, sentinel,
};

use super::Subcommand;
use crate::{
    exit::{CommandFailure, Exit},
    interrupt,
    output::{
        answer::SCHEMA,
        quantity,
        text::{complain, print, print_json},
        ticking::{new_bar, style},
    },
    profile::SavedProfile,
};

mod args;
pub mod screen;

pub use args::TuneArgs;

impl Subcommand for TuneArgs {
    fn outlives_pipes(&self) -> bool {
        true
    }

    fn run(&self, color: bool) -> Result<Exit, CommandFailure> {
        let saved = SavedProfile::find(true);
        if let Some(language) = self.emit {
            let profile = measured(&saved)?;
            print(&emit(profile, self.objective.prefer(), language.language()))?;
            return Ok(Exit::Done);
        }
        interrupt::catch();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let depth = if self.quick { Depth::Quick } else { Depth::Standard };
        let plan = SurveyPlan {
            pairs: pairs(self)?,
            depth,
            budget: self.budget.unwrap_or(depth.budget()),
            loads: loads().to_vec(),
            seed: since.as_nanos() as u64,
            stop: &interrupt::check,
        };
        if self.check { regret(self, &plan, &saved) } else { tune(self, &plan, &saved, color) }
    }
}

/// Runs sessions in new processes of this program, even if its file was renamed.
fn sessions(assumes_idle: bool) -> Spawned {
    Spawned { program: "/proc/self/exe".into(), assumes_idle }
}

fn tune(
    args: &TuneArgs,
    plan: &SurveyPlan<'_>,
    saved: &SavedProfile,
    color: bool,
) -> Result<Exit, CommandFailure> {
    let Some(path) = &saved.path else {
        let why = "cannot save a profile: neither HOME nor THALWEG_PROFILE is set";
        return Err(CommandFailure::new(Exit::Unsupported, why));
    };
    Profile::check_place(path).map_err(|e| CommandFailure::new(Exit::Failed, e.to_string()))?;
    let found = measure(args, plan)?;
    // Results that cannot be saved are still shown.
    let kept = keep(&found, path);
    let mut fresh = Profile::new();
    found.teach(&mut fresh);
    let prefer = args.objective.prefer();
    let rows = found.surveys.iter().flat_map(|survey| rows(survey, &fresh, prefer));
    let rows: Vec<_> = rows.collect();
    let advice = advice(kept.as_ref().map_or(&fresh, |kept| &kept.profile), prefer);
    if args.json {
        print_json(&json!({
            "rows": rows, "cells": found.cells, "seconds": found.seconds,
            "sessions": found.sessions, "objective": prefer, "troubles": found.troubles,
            "other_work": found.met, "unfit": screen::unfit(&found), "skipped": screen::skipped(&found),
            "profile": kept.is_ok().then(|| path.to_string_lossy()), "advice": advice,
            "replaced": kept.as_ref().map(|kept| kept.replaced.clone()).unwrap_or_default(),
            "schema": SCHEMA,
        }))?;
    } else {
        print(&screen::advice(&advice))?;
        if kept.is_ok() {
            print(&format!("profile: {}\n", path.display()))?;
        }
        let details = if args.verbose {
            screen::survey(&found, &rows, &fresh, color)
        } else {
            screen::effort(&found) + "hint: -v shows all measurements\n"
        };
        print(&details)?;
    }
    kept?;
    Ok(if found.troubles.is_empty() { Exit::Done } else { Exit::Failed })
}

/// Measures, and reports problems. Fails if there is no result.
fn measure(args: &TuneArgs, plan: &SurveyPlan<'_>) -> Result<SurveyResult, CommandFailure> {
    let bar = bar(args.json);
    let watch = &mut |progress: &SurveyProgress<'_>| show(&bar, progress);
    let found = tune_machine::survey(plan, &mut sessions(args.assume_idle), watch);
    bar.finish_and_clear();
    let found = found.map_err(|_: Cancelled| interrupt::failure("the profile is unchanged"))?;
    for trouble in &found.troubles {
        complain(trouble);
    }
    if let Some(met) = screen::other_work(&found.met) {
        complain(&met);
    }
    if found.cells.is_empty() {
        let failure =
            CommandFailure::new(Exit::Failed, "nothing was measured; the profile is unchanged");
        let was_busy = found.met.left_out > 0;
        return Err(failure.hint(if was_busy {
            "use --assume-idle to measure although the machine is busy"
        } else {
            ""
        }));
    }
    Ok(found)
}

/// Measures one pair before a command starts, without additional load, and saves the result. Returns a summary.
pub fn briefly(ends: EndPair, budget: Duration) -> Result<String, CommandFailure> {
    let saved = SavedProfile::find(true);
    let nowhere = || {
        let why = "cannot save a profile: neither HOME nor THALWEG_PROFILE is set";
        CommandFailure::new(Exit::Unsupported, why)
    };
    let path = saved.path.as_ref().ok_or_else(nowhere)?;
    Profile::check_place(path).map_err(|e| CommandFailure::new(Exit::Failed, e.to_string()))?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let plan = SurveyPlan {
        pairs: vec![ends],
        depth: Depth::Quick,
        budget,
        loads: vec![Load::Idle],
        seed: since.as_nanos() as u64,
        stop: &interrupt::check,
    };
    let found = tune_machine::survey(&plan, &mut sessions(false), &mut |_: &SurveyProgress<'_>| {});
    let found = found.map_err(|_: Cancelled| interrupt::failure("the profile is unchanged"))?;
    if found.cells.is_empty() {
        let met = screen::other_work(&found.met);
        let why = found.troubles.iter().cloned().chain(met).collect::<Vec<_>>().join("; ");
        return Err(CommandFailure::new(Exit::Failed, format!("nothing was measured: {why}")));
    }
    keep(&found, path)?;
    let sizes: std::collections::BTreeSet<u64> = found.cells.iter().map(|cell| cell.size).collect();
    let sizes: Vec<String> = sizes.into_iter().map(|size| Size(size).to_string()).collect();
    let (sessions, seconds) = (found.sessions, found.seconds);
    Ok(format!("measured {} in {sessions} sessions and {seconds:.1} s", sizes.join(", ")))
}

/// The saved profile, and the reasons why the replaced profile was stale.
struct KeptProfile {
    profile: Profile,
    replaced: Vec<String>,
}

/// Saves the profile, and warns if it replaces a stale one.
fn keep(found: &SurveyResult, path: &Path) -> Result<KeptProfile, CommandFailure> {
    let (profile, before) = SavedProfile::extend(path, |profile| found.teach(profile))
        .map_err(|e| CommandFailure::new(Exit::Failed, e.to_string()))?;
    let stale: Vec<String> = before.stale.iter().map(ToString::to_string).collect();
    if !stale.is_empty() {
        complain(&format!("warning: replaced the old profile: {}", stale.join("; ")));
    }
    if let Some(broken) = &before.broken {
        complain(&format!("warning: replaced the old profile: {broken}"));
    }
    Ok(KeptProfile { profile, replaced: stale })
}

fn regret(
    args: &TuneArgs,
    plan: &SurveyPlan<'_>,
    saved: &SavedProfile,
) -> Result<Exit, CommandFailure> {
    let profile = measured(saved)?;
    let prefer = args.objective.prefer();
    let looks = sentinel::look(profile, Path::new("."), &interrupt::check);
    let bar = bar(args.json);
    let watch = &mut |progress: &SurveyProgress<'_>| show(&bar, progress);
    let checked = check(plan, profile, prefer, &mut sessions(args.assume_idle), watch);
    bar.finish_and_clear();
    let unchanged = |_: Cancelled| interrupt::failure("nothing was changed");
    let mut checked = checked.map_err(unchanged)?;
    let held = held_out(plan, prefer).map_err(unchanged)?.unwrap_or_else(|why| {
        checked
            .troubles
            .push(format!("cannot measure copies with published distributions of sizes: {why}"));
        Vec::new()
    });
    for trouble in &checked.troubles {
        complain(trouble);
    }
    if let Some(met) = screen::other_work(&checked.met) {
        complain(&met);
    }
    if args.json {
        print_json(&json!({
            "regret": checked.regrets, "other_work": checked.met, "held_out": held, "sentinel": looks, "objective": prefer,
            "profile": saved.status(), "seconds": checked.seconds,
            "troubles": checked.troubles, "schema": SCHEMA,
        }))?;
    } else {
        print(&screen::sentinel(&looks))?;
        print(&screen::regret(&checked))?;
        print(&screen::held_out(&held))?;
    }
    let done = checked.troubles.is_empty() && !checked.regrets.is_empty();
    Ok(if done { Exit::Done } else { Exit::Failed })
}

/// Checks the planner's choices for copies in memory, with published distributions of sizes.
#[cfg(feature = "lab")]
fn held_out(
    plan: &SurveyPlan<'_>,
    prefer: Prefer,
) -> Result<Result<Vec<HeldOut>, String>, Cancelled> {
    if !plan.pairs.iter().any(|ends| ends.are_memory() && !ends.are_fill()) {
        return Ok(Ok(Vec::new()));
    }
    thalweg_lab::held_out::held_out(plan, Path::new("/proc/self/exe"), prefer)
}

/// Returns nothing: the distributions are part of the lab, which this build lacks.
#[cfg(not(feature = "lab"))]
fn held_out(_: &SurveyPlan<'_>, _: Prefer) -> Result<Result<Vec<HeldOut>, String>, Cancelled> {
    Ok(Ok(Vec::new()))
}

/// Returns the profile, if it is valid for this machine.
fn measured(saved: &SavedProfile) -> Result<&Profile, CommandFailure> {
    let profile = saved.current.as_ref().filter(|profile| !profile.cells.is_empty());
    profile.ok_or_else(|| {
        CommandFailure::new(
            Exit::Unsupported,
            format!("no measurements of this machine; profile: {}", saved.describe()),
        )
        .hint("run `thalweg tune`")
    })
}

/// Returns the requested pairs, otherwise the usual pairs that are possible on this machine. Fails if a requested pair
/// is impossible.
fn pairs(args: &TuneArgs) -> Result<Vec<EndPair>, CommandFailure> {
    let mut pairs: Vec<EndPair> = args.pair.clone();
    for ends in &pairs {
        if let Some(folder) = ends.folders().find(|folder| !folder.is_dir()) {
            let message = format!("--pair {ends}: {}: not a directory", folder.display());
            return Err(CommandFailure::new(Exit::Usage, message));
        }
        are_possible(ends)
            .map_err(|why| CommandFailure::new(Exit::Usage, format!("--pair {why}")))?;
    }
    if !pairs.is_empty() {
        return Ok(each(pairs));
    }
    let mut usual =
        vec!["file:file@.", "file:pipe@.", "file:tcp@.", "memory:memory", "process:process"];
    let shared = PathBuf::from("/dev/shm");
    if shared.is_dir() {
        usual.insert(1, "file:file@/dev/shm");
    }
    for ends in usual.iter().filter_map(|text| text.parse::<EndPair>().ok()) {
        match are_possible(&ends) {
            Ok(()) => pairs.push(ends),
            Err(why) => complain(&format!("skipped: {why}")),
        }
    }
    Ok(each(pairs))
}

/// Expands the pairs, without duplicates. If memory copies are measured, fills are measured too, because the kernel
/// `tuned` needs both.
fn each(pairs: Vec<EndPair>) -> Vec<EndPair> {
    let copies = pairs.iter().any(EndPair::are_memory);
    let fills = copies.then_some(EndPair { source: EndKind::Fill, sink: EndKind::Memory });
    let mut all: Vec<EndPair> = Vec::new();
    for ends in pairs.into_iter().flat_map(EndPair::each).chain(fills) {
        if !all.contains(&ends) {
            all.push(ends);
        }
    }
    all
}

/// Creates the progress bar; hidden if a program reads the output.
fn bar(json: bool) -> ProgressBar {
    if json { ProgressBar::hidden() } else { new_bar(None, style("{pos}/{len} {wide_msg}")) }
}

fn show(bar: &ProgressBar, progress: &SurveyProgress<'_>) {
    bar.set_length(progress.of as u64);
    bar.set_position(progress.done as u64);
    let doing = if progress.scouting { "trying tunings of" } else { "measuring" };
    let left = quantity::duration(progress.left);
    let (ends, load) = (progress.ends, progress.load.name());
    let other = progress
        .other_work
        .map_or_else(String::new, |busy| format!(" (other processes keep {busy} busy)"));
    bar.set_message(format!("sessions, {left} left: {doing} {ends}, {load}{other}"));
}

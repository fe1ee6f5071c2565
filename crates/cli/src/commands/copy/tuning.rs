//! `--tune`: measures for a few seconds before the copy, and prints one screen afterwards.

use std::{
    fmt::Write,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use thalweg_core::{
    failed::quoted,
    profile::{Load, Ratio},
};
use thalweg_measure::tune_copy::{TuneError, TuneJob, TuneResult, TunedArm, tune};
use thalweg_tree::CopyOptions;

use super::args::CopyArgs;
use crate::{
    interrupt,
    output::{
        answer::{TunedAnswer, TunedArmAnswer, UnavailableMethod},
        paint, quantity,
        ratio::{NOT_ENOUGH, says_nothing},
        table::{render, table},
    },
};

/// Longest time of the measurement, which users accept without a progress display. The measurement before a short copy
/// takes less time.
const BUDGET: Duration = Duration::from_secs(3);

/// Measures the methods on the user's own data.
pub fn measure(
    args: &CopyArgs,
    sources: &[PathBuf],
    destination: &Path,
    options: &CopyOptions,
) -> Result<TuneResult, TuneError> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    tune(&TuneJob {
        sources,
        destination: folder_of(destination, args.no_target_directory),
        options,
        request: options.request.clone(),
        needs: options.needs,
        budget: BUDGET,
        seed: since.as_nanos() as u64,
        stop: &interrupt::check,
    })
}

/// Returns an existing directory on the destination's file system.
fn folder_of(destination: &Path, exact: bool) -> &Path {
    match destination.parent() {
        _ if !exact && destination.is_dir() => destination,
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Facts about the copy that was made after the measurement.
pub struct TuneEnd<'e> {
    /// Duration of the copy.
    pub copied: Duration,
    /// The profile in which the measurement was saved.
    pub kept: Option<&'e Path>,
}

/// Formats the conditions, the results, and the mechanisms that could not take part.
pub fn screen(tuned: &TuneResult, end: &TuneEnd<'_>, color: bool) -> String {
    let mut text = format!("\n{}\n{}", conditions(tuned), arms(tuned, color));
    if let Some(jobs) = tuned.jobs {
        let _ = writeln!(text, "threads: {jobs}{}", jobs_reason(tuned, jobs));
    }
    if let Some(large) = &tuned.large_file {
        let _ = write!(text, "the largest file, {}\n{}", conditions(large), arms(large, color));
    }
    if !tuned.ties.is_empty() {
        let _ = writeln!(text, "tied with the chosen method: {}", tuned.ties.join(", "));
    }
    text.push_str(&why_not_the_first(tuned.large_file.as_deref().unwrap_or(tuned)));
    text.push_str(&effort(tuned, end));
    if !tuned.unavailable.is_empty() {
        let _ = writeln!(text, "not available here:");
        for one in &tuned.unavailable {
            let _ = writeln!(text, "  {}: {}", one.name, one.reason);
        }
    }
    text
}

/// Formats where the measurement was saved, and whether it was worth its time.
fn effort(tuned: &TuneResult, TuneEnd { copied, kept }: &TuneEnd<'_>) -> String {
    let (mut text, kept_cells) = (other_work(tuned), tuned.kept().len());
    if let Some(path) = kept.filter(|_| kept_cells > 0) {
        let _ = writeln!(
            text,
            "saved for later copies{}: {} in {}",
            if tuned.kept_as() == Some(Load::Loaded) { " on a busy machine" } else { "" },
            quantity::count(kept_cells as u64, "measurement", "measurements"),
            quoted(path),
        );
    } else {
        text += "nothing saved for later copies\n";
    }
    if copied.as_secs_f64() < tuned.seconds {
        let _ = writeln!(
            text,
            "measured for {:.1} s, copied in {}: --tune does not pay off for such short copies",
            tuned.seconds,
            quantity::duration(*copied),
        );
    }
    text
}

/// Describes the load by other processes during the measurement; empty if the machine was idle. This copy uses the
/// measurement in both cases.
fn other_work(tuned: &TuneResult) -> String {
    match (&tuned.busy, tuned.kept_as()) {
        (Some(busy), load) if load != Some(Load::Idle) && busy.is_crowded() => {
            format!("other processes kept {busy} busy before the measurement\n")
        }
        (_, None) => {
            let share = tuned.disturbed * 100.0;
            format!("other processes disturbed {share:.0} % of the samples\n")
        }
        _ => String::new(),
    }
}

/// Returns the reason for the number of threads, as text such as `, one per core: ...`.
fn jobs_reason(tuned: &TuneResult, jobs: usize) -> String {
    let measured: Vec<usize> = tuned.arms.iter().filter_map(|arm| arm.jobs).collect();
    match measured.iter().max() {
        Some(_) if measured.len() == 1 => String::new(),
        Some(most) if *most == jobs => ", one per core: fewer threads were not faster".to_owned(),
        _ => ": faster than one thread per core".to_owned(),
    }
}

/// Explains why the chosen mechanism is not the first in the table; empty if it is.
fn why_not_the_first(tuned: &TuneResult) -> String {
    let ranked = ranked(tuned);
    let Some(winner) = &tuned.winner else { return String::new() };
    let Some(first) = ranked.iter().find_map(|arm| arm.mechanism) else { return String::new() };
    if first == winner.mechanism {
        return String::new();
    }
    let why = if tuned.ties.contains(&first) {
        "they are tied, and the chosen method comes first in `thalweg list`"
    } else {
        "the guarantees or --prefer require it"
    };
    format!("{} was chosen instead of {first}: {why}\n", winner.mechanism)
}

/// Formats a line for every mechanism at its best tuning, and for `cp`.
fn arms(tuned: &TuneResult, color: bool) -> String {
    let mut rows = table(&["  METHOD", "TIME/CP", "INTERVAL", "WITHOUT START", "CPU/CP", ""]);
    let ratio = |ratio: Option<Ratio>| ratio.map_or("-".to_owned(), |r| format!("{:.2}x", r.ratio));
    let mut shown: Vec<&'static str> = Vec::new();
    let mut tunings = 0;
    for arm in ranked(tuned) {
        if let Some(mechanism) = arm.mechanism {
            tunings += 1;
            let represented = shown.contains(&mechanism);
            let better_known = tuned.winner.as_ref().is_some_and(|w| w.mechanism == mechanism);
            if represented || (better_known && !won(tuned, arm)) {
                continue;
            }
            shown.push(mechanism);
        }
        rows.add_row([
            format!("{} {}", if won(tuned, arm) { CHOSEN } else { " " }, arm.name),
            ratio(arm.ratio_to_cp),
            arm.ratio_to_cp.map_or(String::new(), |ratio| interval(&ratio)),
            ratio(arm.ratio_to_cp_started),
            ratio(arm.cpu_ratio_to_cp),
            word(tuned, arm),
        ]);
    }
    let mut text = String::new();
    for line in render(&rows).lines() {
        let line =
            if line.starts_with(CHOSEN) { paint::strong(line, color) } else { line.to_owned() };
        let _ = writeln!(text, "{line}");
    }
    if tunings > shown.len() {
        let _ = writeln!(text, "  ({} other tunings also measured)", tunings - shown.len());
    }
    text
}

const CHOSEN: &str = "*";

fn conditions(tuned: &TuneResult) -> String {
    let slice = &tuned.slice;
    let files = if slice.files > 1 {
        format!(" in {}", quantity::count(slice.files, "file", "files"))
    } else {
        String::new()
    };
    let of = slice.of.filter(|of| *of > slice.bytes).map(quantity::bytes);
    let of = of.map_or(String::new(), |of| format!(" of {of}"));
    let cp = match &tuned.cp {
        Ok(cp) => format!(
            "compared with `{}` ({}; its start-up time is included)",
            cp.command, cp.version
        ),
        Err(reason) => format!("not compared with cp, which failed: {reason}"),
    };
    format!(
        "measured in {:.1} s on {}{files}{of}, noise {:.0} %, {cp}:",
        tuned.seconds,
        quantity::bytes(slice.bytes),
        tuned.noise * 100.0,
    )
}

/// Sorts the variants by ratio, best first; those that were not compared come last.
fn ranked(tuned: &TuneResult) -> Vec<&TunedArm> {
    let mut arms: Vec<&TunedArm> = tuned.arms.iter().collect();
    let score = |arm: &TunedArm| {
        let ratio = arm.ratio_to_cp.or(arm.ratio_to_read_write);
        ratio.map_or(f64::MAX, |ratio| ratio.ratio)
    };
    arms.sort_by(|a, b| score(a).total_cmp(&score(b)));
    arms
}

fn interval(ratio: &Ratio) -> String {
    match ratio {
        ratio if *ratio == Ratio::ONE => String::new(),
        ratio if says_nothing(ratio) => NOT_ENOUGH.to_owned(),
        ratio => format!("{:.2} - {:.2}", ratio.lo, ratio.hi),
    }
}

/// Returns `true` if the planner chooses this variant.
fn won(tuned: &TuneResult, arm: &TunedArm) -> bool {
    if arm.jobs.is_some() {
        return arm.jobs == tuned.jobs;
    }
    let winner = tuned.winner.as_ref();
    winner.is_some_and(|w| arm.mechanism == Some(w.mechanism) && arm.tuning == w.tuning)
}

/// Returns text such as `faster, shares blocks instead of copying, chosen`.
fn word(tuned: &TuneResult, arm: &TunedArm) -> String {
    let mut words: Vec<String> = Vec::new();
    if let Some(verdict) = arm.against_cp.filter(|_| arm.ratio_to_cp != Some(Ratio::ONE)) {
        words.push(verdict.to_string());
    }
    if arm.saves_work {
        words.push("shares blocks instead of copying".to_owned());
    }
    if let Some(reason) = &arm.dropped {
        words.push(reason.clone());
    }
    if won(tuned, arm) {
        words.push("chosen".to_owned());
    }
    words.join(", ")
}

/// Returns the results for JSON output.
pub fn answer(tuned: &TuneResult) -> TunedAnswer {
    let arms = ranked(tuned).into_iter().map(|arm| TunedArmAnswer {
        name: arm.name.clone(),
        ratio_to_cp: arm.ratio_to_cp.map(|ratio| ratio.ratio),
        spread: arm.ratio_to_cp.map(|ratio| (ratio.hi - ratio.lo) / 2.0 / ratio.ratio),
    });
    TunedAnswer { arms: arms.collect() }
}

/// Returns the mechanisms that could not take part.
pub fn unavailable(tuned: &TuneResult) -> Vec<UnavailableMethod> {
    let unavailable = tuned.unavailable.iter();
    unavailable
        .map(|u| UnavailableMethod { name: u.name.to_owned(), reason: u.reason.clone() })
        .collect()
}

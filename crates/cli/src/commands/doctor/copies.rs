//! The sizes at which libc's memcpy changes its method (thresholds). On request, measures other thresholds on this
//! machine.

use serde::Serialize;
use std::{
    fmt::Write,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};
use thalweg_core::quantity::Size;
use thalweg_lab::libc_thresholds::{
    Crossover, Effective, Measuring, SizeEffect, ThresholdsResult, TriedSetting, measure,
};
use thalweg_sys::host::libc_version;

use crate::{
    commands::doctor::DoctorArgs,
    exit::{CommandFailure, Exit},
    interrupt,
    output::{
        table::{render, table},
        text::note,
    },
};

/// The thresholds in effect, and the measurements.
#[derive(Debug, Serialize)]
pub struct MemcpyReport {
    #[serde(flatten)]
    effective: Option<Effective>,
    unknown: Option<String>,
    measured: Option<ThresholdsResult>,
}

/// Path of this program, even if its file was renamed.
const OURSELVES: &str = "/proc/self/exe";

/// Reads the thresholds, and measures if requested.
pub fn look(args: &DoctorArgs) -> Result<MemcpyReport, CommandFailure> {
    let (effective, unknown) = match Effective::now(Path::new(OURSELVES)) {
        Ok(effective) => (Some(effective), None),
        Err(why) => (None, Some(why)),
    };
    let mut copies = MemcpyReport { effective, unknown, measured: None };
    if !args.memcpy {
        return Ok(copies);
    }
    let Some(effective) = &copies.effective else {
        let why = copies.unknown.unwrap_or_default();
        return Err(CommandFailure::new(Exit::Unsupported, format!("--memcpy: {why}")));
    };
    if effective.is_of_others && cfg!(not(target_env = "gnu")) {
        let why = "--memcpy: thalweg is statically linked without glibc's memcpy";
        return Err(CommandFailure::new(Exit::Unsupported, why)
            .hint("build a thalweg that uses glibc: PIE=1 make programs"));
    }
    if !args.json {
        note("measuring memcpy with other thresholds, about 20 s");
    }
    interrupt::catch();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let how = Measuring {
        program: Path::new(OURSELVES),
        seed: since.as_nanos() as u64,
        stop: &interrupt::check,
    };
    let found = measure(effective, &how).map_err(|why| CommandFailure::new(Exit::Failed, why))?;
    copies.measured = Some(found);
    Ok(copies)
}

pub fn printed(copies: &MemcpyReport) -> String {
    let mut text = String::new();
    let Some(effective) = &copies.effective else {
        let why = copies.unknown.as_deref().unwrap_or_default();
        let _ = writeln!(text, "  thresholds unknown: {why}");
        return text;
    };
    if effective.is_of_others {
        let loader = effective.loader.display();
        let _ = writeln!(
            text,
            "  thresholds of dynamically linked programs, from {loader}; thalweg is statically linked"
        );
    }
    let mut rows = table(&[]);
    for threshold in &effective.thresholds {
        let from = format!("from {}", Size(threshold.bytes));
        rows.add_row([format!("  {}", threshold.name), from, threshold.what.to_owned()]);
    }
    text.push_str(&render(&rows));
    match &copies.measured {
        None => text.push_str("  to measure other thresholds: thalweg doctor --memcpy\n"),
        Some(found) => {
            if effective.is_of_others {
                let own = libc_version().unwrap_or_default();
                let _ = writeln!(text, "  measured with the memcpy of this program ({own})");
            }
            measured(&mut text, found);
        }
    }
    text
}

fn measured(text: &mut String, found: &ThresholdsResult) {
    for crossover in &found.crossovers {
        let _ = writeln!(text, "  {}", crossed(crossover));
    }
    if !found.tried.is_empty() {
        let _ = writeln!(text, "  time of memcpy with each setting, relative to the default:");
        let all = found.tried.iter().chain(&found.confirmed);
        text.push_str(&effects(all.collect()));
    }
    match (&found.advice, &found.no_advice) {
        (Some(advice), _) => {
            let _ = writeln!(
                text,
                "  faster, and not slower at any of these sizes:\n    {}",
                advice.line
            );
            for effect in &advice.effects {
                let _ = writeln!(text, "    {}: {}", Size(effect.size), in_full(effect));
            }
        }
        (None, why) => {
            let _ = writeln!(text, "  no better setting: {}", why.as_deref().unwrap_or_default());
        }
    }
}

fn crossed(crossover: &Crossover) -> String {
    let Crossover { way, from, among: [least, most], bytes, .. } = crossover;
    let range = format!("sizes {} to {}", Size(*least), Size(*most));
    match bytes {
        Some(bytes) => {
            format!("measured: {way} becomes faster than {from} at {} ({range})", Size(*bytes))
        }
        None => format!("measured: {way} does not stay faster than {from} ({range})"),
    }
}

/// Formats a row for each setting. Settings that were measured a second time come last.
fn effects(tried: Vec<&TriedSetting>) -> String {
    let sizes: Vec<String> = tried.first().map_or_else(Vec::new, |one| {
        one.effects.iter().map(|effect| Size(effect.size).to_string()).collect()
    });
    let mut head = vec!["  SETTING"];
    head.extend(sizes.iter().map(String::as_str));
    let mut rows = table(&head);
    for one in tried {
        let mut row =
            vec![format!("  {}", one.tunables.replace("glibc.cpu.", "").replace(':', " "))];
        row.extend(one.effects.iter().map(|effect| {
            format!("{:.2}{}", effect.ratio.ratio, if shows(effect) { "" } else { " (tie)" })
        }));
        rows.add_row(row);
    }
    render(&rows)
}

fn shows(effect: &SizeEffect) -> bool {
    effect.verdict != thalweg_measure::stats::RatioVerdict::NoDifferenceShown
}

fn in_full(effect: &SizeEffect) -> String {
    let SizeEffect { ratio, verdict, noise, .. } = effect;
    format!(
        "{:.2}x the time [{:.2}, {:.2}], {verdict} (noise {:.0} %)",
        ratio.ratio,
        ratio.lo,
        ratio.hi,
        noise * 100.0
    )
}

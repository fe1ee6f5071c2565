//! Summary of a copy: one line of text, or one JSON object.

use std::{fmt::Write, time::Duration};
use thalweg_core::{Tuning, shown};
use thalweg_measure::tune_copy::TuneResult;
use thalweg_tree::{Halt, MechanismShare, TreeReport};

use super::args::Verify;
use super::tuning;
use crate::output::{
    answer::{Answer, SCHEMA, Step, Verified, look_in_words},
    quantity,
};

/// Returns text such as `copied 3 files, 1.2 GiB in 0.6 s: 2.0 GiB/s by read-write`.
pub fn line(report: &TreeReport, dry_run: bool) -> String {
    let mut things = vec![quantity::count(report.files, "file", "files")];
    for (number, one, many) in [
        (report.dirs, "folder", "folders"),
        (report.links, "link", "links"),
        (report.specials, "special file", "special files"),
    ] {
        if number > 0 {
            things.push(quantity::count(number, one, many));
        }
    }
    if dry_run {
        let out = match report.left_out {
            0 => String::new(),
            number => format!("; {number} left out"),
        };
        return format!("would copy {}{out}\n", things.join(", "));
    }
    let took = Duration::try_from_secs_f64(report.seconds).unwrap_or_default();
    let mut line = format!(
        "copied {}, {} in {}",
        things.join(", "),
        quantity::bytes(report.bytes),
        quantity::duration(took)
    );
    if let Some(share) = report.main() {
        let rate = quantity::rate(report.bytes, took);
        let _ = write!(line, ": {rate} by {}", named(share.mechanism, &share.tuning));
        let percent = share.bytes.saturating_mul(100) / report.bytes.max(1);
        if report.shares.len() > 1 && percent < 100 {
            // Small and large files may use different mechanisms.
            let _ = write!(line, " ({percent} % of the bytes{})", others(report, share));
        }
    }
    for (number, what) in [(report.cloned, "cloned"), (report.resumed, "moved by an earlier run")] {
        if number > 0 {
            let _ = write!(line, "; {} {what}", quantity::bytes(number));
        }
    }
    for (number, what) in [
        (report.skipped, "left as they were"),
        (report.left_out, "left out"),
        (report.unlinked, "copied instead of linked"),
        (report.attributes_dropped, "extended attributes not taken by the destination"),
        (report.verified.same, "verified"),
        (
            report.verified.from_memory,
            "of them from memory: the kernel did not drop their pages, so the device was not read",
        ),
        (report.verified.again, "differed and were copied again"),
        (
            report.verified.not_read,
            "could not be verified: a pipe or device cannot be read again, a dry run reads nothing",
        ),
        (report.changed, "changed meanwhile"),
        (report.error_count, "with problems"),
    ] {
        if number > 0 {
            let _ = write!(line, "; {number} {what}");
        }
    }
    line + "\n"
}

/// Returns text such as `, else by read-write`.
fn others(report: &TreeReport, main: &MechanismShare) -> String {
    let names = report.shares.iter().map(|share| share.mechanism);
    let mut names: Vec<&str> = names.filter(|name| *name != main.mechanism).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() { String::new() } else { format!(", else by {}", names.join(", ")) }
}

/// Formats a line for every change of mechanism. Changes of several files for the same reason share one line.
///
/// Some mechanisms are tried because only the kernel knows whether they work, and fail before they move a byte (a
/// clone on a file system without clones). These changes are included only if `all` is `true`.
pub fn steps_down(report: &TreeReport, all: bool) -> String {
    let mut text = String::new();
    let mut told: Vec<String> = Vec::new();
    for step in report.steps_down.iter().filter(|step| all || step.at > 0) {
        let why = format!("{} -> {}: {}: {}", step.from, step.to, step.call, step.reason);
        if !told.contains(&why) {
            let _ = writeln!(text, "stepped down at byte {}: {why}", step.at);
            told.push(why);
        }
    }
    text
}

/// Formats a line for every trial in which mechanisms took turns.
pub fn looks(report: &TreeReport) -> String {
    report.looks.iter().map(|look| look_in_words(look) + "\n").collect()
}

/// Returns text such as `splice (pipe=64K)`.
pub fn named(mechanism: &str, tuning: &Tuning) -> String {
    if tuning.is_default() { mechanism.to_owned() } else { format!("{mechanism} ({tuning})") }
}

pub fn answer(report: &TreeReport, tuned: Option<&TuneResult>, verify: Option<Verify>) -> Answer {
    let main = report.main();
    let stopped = matches!(report.halted, Some(Halt::Cancelled)).then(|| "interrupted".to_owned());
    Answer {
        bytes: report.bytes,
        files: report.files,
        seconds: report.seconds,
        cpu_seconds: report.cpu_seconds,
        mechanism: main.map(|share| share.mechanism.to_owned()),
        tuning: main.map(|share| share.tuning.clone()).unwrap_or_default(),
        choice: None,
        steps_down: report.steps_down.iter().map(Step::from).collect(),
        looks: report.looks.clone(),
        attributes_dropped: report.attributes_dropped,
        verified: verified(report, verify),
        tree: None,
        fleet: None,
        tune: tuned.map(tuning::answer),
        unavailable: tuned.map(tuning::unavailable).unwrap_or_default(),
        unfinished: report.unfinished.iter().map(|path| shown(path).to_string()).collect(),
        torn: report.torn.iter().map(|path| shown(path).to_string()).collect(),
        error: report.errors.first().map(ToString::to_string).or(stopped),
        schema: SCHEMA,
    }
}

fn verified(report: &TreeReport, verify: Option<Verify>) -> Verified {
    let counts = report.verified;
    let Some(verify) = verify else { return Verified::default() };
    Verified {
        asked: true,
        same: counts.same,
        differ: report.differing,
        again: counts.again,
        not_read: counts.not_read,
        bytes: counts.bytes,
        from_memory: counts.from_memory,
        hash: Some(verify.hash_name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_core::StepDown;

    #[test]
    fn a_way_that_never_moved_a_byte_is_told_only_to_those_who_ask() {
        let step = |from, at| {
            let reason = String::from("EOPNOTSUPP");
            StepDown { from, to: "read-write", at, call: "call", errno: "EOPNOTSUPP", reason }
        };
        let steps = vec![step("reflink", 0), step("splice", 4096), step("splice", 8192)];
        let report = TreeReport { steps_down: steps, ..TreeReport::default() };
        let left = "stepped down at byte 4096: splice -> read-write: call: EOPNOTSUPP\n";
        assert_eq!(steps_down(&report, false), left);
        let tried = "stepped down at byte 0: reflink -> read-write: call: EOPNOTSUPP\n";
        assert_eq!(steps_down(&report, true), format!("{tried}{left}"));
    }
}

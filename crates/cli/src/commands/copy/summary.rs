//! Summary of a copy: one line of text, or one JSON object.

use std::{fmt::Write, time::Duration};
use thalweg_core::{Tuning, shown};
use thalweg_measure::tune_copy::TuneResult;
use thalweg_tree::{Halt, MechanismShare, TreeReport};

use super::args::Verify;
use super::tuning;
use crate::output::{
    answer::{FallbackStep, JsonAnswer, SCHEMA, VerifiedCounts, describe_look},
    quantity,
    summary_words::{RATED, add_counts, count, grouped, time_and_rate},
};

/// Returns text such as `1 file copied (4 B), 4,005 unchanged`. For at least [`RATED`] bytes, the text also has the
/// time, the rate and the method. If `names_method` is `true`, it always has the method.
pub fn line(report: &TreeReport, names_method: bool) -> String {
    let mut line = match things(report) {
        Some(things) if report.files == 0 && report.bytes == 0 => format!("{things} copied"),
        Some(things) => format!("{things} copied ({})", quantity::bytes(report.bytes)),
        // A rate is meaningless if no file is complete.
        None => return incomplete(report) + "\n",
    };
    let is_rated = report.bytes >= RATED;
    let took = Duration::try_from_secs_f64(report.seconds).unwrap_or_default();
    line += &time_and_rate(report.bytes, took);
    if let Some(share) = report.main().filter(|_| is_rated || names_method) {
        let _ = write!(line, " by {}", named(share.mechanism, &share.tuning));
        let percent = share.bytes.saturating_mul(100) / report.bytes.max(1);
        if report.shares.len() > 1 && percent < 100 {
            // Small and large files may use different mechanisms.
            let _ = write!(line, " ({percent} % of the data{})", others(report, share));
        }
    }
    add_exceptions(&mut line, report);
    line + "\n"
}

/// Describes a copy that completed nothing: `nothing copied, 4,005 unchanged`, or `no file copied completely, 98.0 MiB
/// written`.
fn incomplete(report: &TreeReport) -> String {
    let is_left = !report.unfinished.is_empty() || !report.torn.is_empty();
    let mut line = if is_left && report.bytes > 0 {
        format!("no file copied completely, {} written", quantity::bytes(report.bytes))
    } else {
        "nothing copied".to_owned()
    };
    add_exceptions(&mut line, report);
    line
}

/// Returns text such as `3 files would be copied, 5 excluded`.
pub fn dry_run_line(report: &TreeReport) -> String {
    let things = things(report).unwrap_or_else(|| "nothing".to_owned());
    let mut line = format!("{things} would be copied");
    for (number, what) in [(report.skipped, "unchanged"), (report.left_out, "excluded")] {
        if number > 0 {
            let _ = write!(line, ", {} {what}", grouped(number));
        }
    }
    line + "\n"
}

/// Returns text such as `3 files, 1 link`; `None` if nothing was copied. The count of directories includes existing
/// ones, so it is used only if nothing but directories was copied.
fn things(report: &TreeReport) -> Option<String> {
    let things: Vec<String> = [
        (report.files, "file", "files"),
        (report.links, "link", "links"),
        (report.specials, "special file", "special files"),
    ]
    .into_iter()
    .filter(|(number, ..)| *number > 0)
    .map(|(number, one, many)| count(number, one, many))
    .collect();
    let is_new = report.skipped == 0 && report.left_out == 0;
    match things.is_empty() {
        false => Some(things.join(", ")),
        true if is_new && report.dirs > 0 => Some(count(report.dirs, "directory", "directories")),
        true => None,
    }
}

/// Appends what did not happen as usual.
fn add_exceptions(line: &mut String, report: &TreeReport) {
    for (number, what) in
        [(report.cloned, "cloned"), (report.continued, "copied by an earlier run")]
    {
        if number > 0 {
            line.extend([", ", &quantity::bytes(number), " ", what]);
        }
    }
    let counts = [
        (report.skipped, "unchanged"),
        (report.left_out, "excluded"),
        (report.unlinked, "copied instead of linked"),
        (report.attributes_dropped, "extended attributes refused by the destination"),
        (report.verified.same, "verified"),
        (report.verified.from_memory, "of them read from the page cache, not from the device"),
        (report.verified.again, "copied again after a difference"),
        (report.verified.not_read, "not verified (pipe, device or dry run)"),
        (report.changed, "changed during the copy"),
    ];
    add_counts(line, &counts);
    if report.error_count > 0 {
        line.extend([", ", &count(report.error_count, "error", "errors")]);
    }
}

/// Returns text such as `, otherwise by read-write`.
fn others(report: &TreeReport, main: &MechanismShare) -> String {
    // If a mechanism was tried but moved no bytes, it is reported only as a fallback.
    let movers = report.shares.iter().filter(|share| share.bytes > 0);
    let names = movers.map(|share| share.mechanism);
    let mut names: Vec<&str> = names.filter(|name| *name != main.mechanism).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() { String::new() } else { format!(", otherwise by {}", names.join(", ")) }
}

/// Formats a line for every fallback to another mechanism. Fallbacks of several files for the same reason share one
/// line.
///
/// thalweg can test some mechanisms, such as a clone, only by using them. If they fail, they have moved no byte. These
/// fallbacks are included only if `all` is `true`.
pub fn fallbacks(report: &TreeReport, all: bool) -> String {
    let mut text = String::new();
    let mut printed: Vec<String> = Vec::new();
    for step in report.steps_down.iter().filter(|step| all || step.at > 0) {
        let ends = format!("from {} to {}", step.from, step.to);
        let why = format!("{}: {}", step.call, step.reason);
        let key = format!("{ends} {why}");
        if !printed.contains(&key) {
            let _ = writeln!(text, "fell back {ends} at byte {}: {why}", step.at);
            printed.push(key);
        }
    }
    text
}

/// Formats a line for every comparison of mechanisms during the copy.
pub fn looks(report: &TreeReport) -> String {
    report.looks.iter().map(|look| describe_look(look) + "\n").collect()
}

/// Returns text such as `splice (pipe=64K)`.
pub fn named(mechanism: &str, tuning: &Tuning) -> String {
    if tuning.is_default() { mechanism.to_owned() } else { format!("{mechanism} ({tuning})") }
}

pub fn answer(
    report: &TreeReport,
    tuned: Option<&TuneResult>,
    verify: Option<Verify>,
) -> JsonAnswer {
    let main = report.main();
    let stopped = matches!(report.halted, Some(Halt::Cancelled)).then(|| "interrupted".to_owned());
    JsonAnswer {
        bytes: report.bytes,
        files: report.files,
        seconds: report.seconds,
        cpu_seconds: report.cpu_seconds,
        mechanism: main.map(|share| share.mechanism.to_owned()),
        tuning: main.map(|share| share.tuning.clone()).unwrap_or_default(),
        choice: None,
        steps_down: report.steps_down.iter().map(FallbackStep::from).collect(),
        looks: report.looks.clone(),
        attributes_dropped: report.attributes_dropped,
        resumed: report.continued,
        verified: verified(report, verify),
        tree: None,
        sync: None,
        fleet: None,
        tune: tuned.map(tuning::answer),
        unavailable: tuned.map(tuning::unavailable).unwrap_or_default(),
        unfinished: report.unfinished.iter().map(|path| shown(path).to_string()).collect(),
        torn: report.torn.iter().map(|path| shown(path).to_string()).collect(),
        error: report.errors.first().map(ToString::to_string).or(stopped),
        schema: SCHEMA,
    }
}

fn verified(report: &TreeReport, verify: Option<Verify>) -> VerifiedCounts {
    let counts = report.verified;
    let Some(verify) = verify else { return VerifiedCounts::default() };
    VerifiedCounts {
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
    fn a_method_that_never_moved_a_byte_is_reported_only_on_request() {
        let step = |from, at| {
            let reason = String::from("EOPNOTSUPP");
            StepDown { from, to: "read-write", at, call: "call", errno: "EOPNOTSUPP", reason }
        };
        let steps = vec![step("reflink", 0), step("splice", 4096), step("splice", 8192)];
        let report = TreeReport { steps_down: steps, ..TreeReport::default() };
        let moved = "fell back from splice to read-write at byte 4096: call: EOPNOTSUPP\n";
        assert_eq!(fallbacks(&report, false), moved);
        let tried = "fell back from reflink to read-write at byte 0: call: EOPNOTSUPP\n";
        assert_eq!(fallbacks(&report, true), format!("{tried}{moved}"));
    }

    #[test]
    fn a_summary_names_only_methods_that_moved_bytes() {
        let share = |mechanism, bytes| MechanismShare {
            mechanism,
            tuning: Tuning::default(),
            bytes,
            files: 1,
        };
        let shares = vec![share("splice", 990), share("read-write", 10), share("reflink", 0)];
        let report = TreeReport { files: 3, bytes: 1000, shares, ..TreeReport::default() };
        let line = line(&report, true);
        assert!(line.contains(" by splice (99 % of the data, otherwise by read-write)"), "{line}");
    }

    #[test]
    fn a_summary_names_what_changed_and_no_rate_of_a_few_bytes() {
        let none = TreeReport::default();
        let update =
            TreeReport { files: 1, dirs: 44, bytes: 4, skipped: 4005, seconds: 1.0, ..none };
        assert_eq!(line(&update, false), "1 file copied (4 B), 4,005 unchanged\n");
        let same = TreeReport { files: 0, bytes: 0, resumed: 12, continued: 0, ..update };
        assert_eq!(line(&same, false), "nothing copied, 4,005 unchanged\n");
        let whole =
            TreeReport { files: 2, links: 1, skipped: 0, bytes: 3 << 30, continued: 12, ..same };
        let rated =
            "2 files, 1 link copied (3.0 GiB) in 1.0 s, 3.0 GiB/s, 12 B copied by an earlier run\n";
        assert_eq!(line(&whole, false), rated);
        let none = TreeReport::default();
        let resumed = TreeReport { files: 1, bytes: 4, skipped: 1, continued: 12, ..none };
        assert_eq!(
            line(&resumed, false),
            "1 file copied (4 B), 12 B copied by an earlier run, 1 unchanged\n"
        );
        let unfinished = vec!["x".into()];
        let left = TreeReport {
            files: 0,
            bytes: 98 << 20,
            skipped: 0,
            unfinished,
            ..TreeReport::default()
        };
        assert_eq!(line(&left, true), "no file copied completely, 98.0 MiB written\n");
        let dirs = TreeReport { dirs: 2, ..TreeReport::default() };
        assert_eq!(line(&dirs, false), "2 directories copied\n");
        assert_eq!(dry_run_line(&dirs), "2 directories would be copied\n");
        let dry = TreeReport { files: 3, left_out: 5, ..TreeReport::default() };
        assert_eq!(dry_run_line(&dry), "3 files would be copied, 5 excluded\n");
    }
}

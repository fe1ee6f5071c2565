//! Text output of a survey and of a check.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    time::Duration,
};
use thalweg_core::{
    Prefer, Profile,
    bands::Band,
    profile::{Load, Ratio},
    quantity::Size,
};
use thalweg_measure::{
    stats::RatioVerdict,
    tune_machine::{
        OtherWork, SurveyResult, SurveyRow,
        advice::TuneAdvice,
        check::{HeldOut, SurveyCheck},
        regret::RegretSpread,
        sentinel::SentinelLook,
    },
};

use crate::output::{
    paint, quantity,
    ratio::{NOT_ENOUGH, says_nothing},
    table::{render, table},
};

/// Formats one line per pair and size: winner, runner-up, and their ratio with its interval.
pub fn survey(found: &SurveyResult, rows: &[SurveyRow], profile: &Profile, color: bool) -> String {
    let mut text = String::new();
    for (title, rows) in by_title(rows) {
        let mut lines = table(&["  SIZE", "CHOSEN", "SECOND BEST", "RATIO", ""]);
        for row in rows {
            lines.add_row([
                format!("  {}", Size(row.size)),
                row.winner.to_string(),
                row.runner_up.as_ref().map_or("-".to_owned(), ToString::to_string),
                row.ratio.as_ref().map_or("-".to_owned(), with_interval),
                row.verdict.map_or(String::new(), |verdict| word(verdict, row.noise)),
            ]);
        }
        let _ = write!(text, "{}\n{}", paint::strong(&title, color), render(&lines));
    }
    text.push_str(&kernels(profile));
    for (pair, reasons) in unfit(found) {
        let _ = writeln!(text, "not available on {pair}:");
        for (way, reason) in reasons {
            let _ = writeln!(text, "  {way}: {reason}");
        }
    }
    for (pair, sizes) in skipped(found) {
        let sizes: Vec<String> = sizes.iter().map(|size| Size(*size).to_string()).collect();
        let _ = writeln!(
            text,
            "not measured on {pair}: {}: not enough time (raise --budget) or space",
            sizes.join(", ")
        );
    }
    text + &effort(found)
}

/// Returns text such as `6 sessions in 2:01`.
pub fn effort(found: &SurveyResult) -> String {
    let took = Duration::try_from_secs_f64(found.seconds).unwrap_or_default();
    let sessions = quantity::count(found.sessions as u64, "session", "sessions");
    format!("{sessions} in {}\n", quantity::duration(took))
}

/// Describes the sessions that required an idle machine and were disturbed by other work; `None` if there were none.
pub fn other_work(met: &OtherWork) -> Option<String> {
    let OtherWork { as_loaded, left_out, of, most } = met;
    let count = as_loaded + left_out;
    let most = most.as_ref().filter(|_| count > 0)?;
    let mut became = Vec::new();
    if *as_loaded > 0 {
        became.push(format!("{as_loaded} counted as sessions of a busy machine"));
    }
    if *left_out > 0 {
        became.push(format!("{left_out} discarded"));
    }
    let became = became.join(", ");
    Some(format!(
        "warning: other processes used up to {most} and disturbed {count} of {of} sessions that measure the idle machine: {became}"
    ))
}

/// Groups the rows by pair and conditions, in order of appearance.
fn by_title(rows: &[SurveyRow]) -> Vec<(String, Vec<&SurveyRow>)> {
    let mut groups: Vec<(String, Vec<&SurveyRow>)> = Vec::new();
    for row in rows {
        let over = row.pair.sink_words(row.sink_state);
        let sharing = if row.zero_copy { ", --zero-copy" } else { "" };
        let title = format!("{}, {}{over}{sharing}", row.pair, row.load.name());
        match groups.iter_mut().find(|(known, _)| *known == title) {
            Some((_, rows)) => rows.push(row),
            None => groups.push((title, vec![row])),
        }
    }
    groups
}

fn with_interval(ratio: &Ratio) -> String {
    if says_nothing(ratio) {
        return NOT_ENOUGH.to_owned();
    }
    format!("{:.2}x [{:.2}, {:.2}]", ratio.ratio, ratio.lo, ratio.hi)
}

fn word(verdict: RatioVerdict, noise: f64) -> String {
    match verdict {
        RatioVerdict::Faster => "faster".to_owned(),
        RatioVerdict::NoDifferenceShown => format!("tie (noise {:.0} %)", noise * 100.0),
        // The planner optimizes another metric, or accepts a small loss for a safer mechanism.
        RatioVerdict::Slower => "slower; chosen by --objective, or because it is safer".to_owned(),
    }
}

/// Formats the kernels that `tuned` uses with this profile, by size.
fn kernels(profile: &Profile) -> String {
    let copies = profile.kernel_bands(Load::Idle, Prefer::Wall);
    let fills = profile.fill_bands(Load::Idle, Prefer::Wall);
    bands_line("copies in memory", &copies) + &bands_line("fills of memory", &fills)
}

fn bands_line(what: &str, found: &[Band]) -> String {
    let bands: Vec<String> = found
        .iter()
        .map(|band| {
            format!("{} up to {} ({:.2}x libc)", band.kernel, Size(band.upto), band.ratio.ratio)
        })
        .collect();
    let beyond = match found.last() {
        None => return String::new(),
        Some(last) if last.extrapolated => format!("{} beyond (extrapolated)", last.kernel),
        Some(_) => "libc beyond".to_owned(),
    };
    format!("{what}: {}, {beyond}\n", bands.join(", "))
}

/// Formats the advice for this machine, one line each.
pub fn advice(lines: &[TuneAdvice]) -> String {
    let mut text = "fastest on this machine:\n".to_owned();
    for line in lines {
        let _ = writeln!(text, "  {:<10} {}", line.name(), line.text);
    }
    text
}

/// Returns the reasons why mechanisms could not take part, by pair and mechanism.
pub fn unfit(found: &SurveyResult) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut all: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for survey in &found.surveys {
        let reasons = survey.sessions.iter().flat_map(|session| &session.unfit);
        for (way, reason) in reasons {
            let of_pair = all.entry(survey.ends.to_string()).or_default();
            of_pair.insert(way.to_string(), reason.clone());
        }
    }
    all
}

/// Returns the sizes that no session measured, by pair.
pub fn skipped(found: &SurveyResult) -> BTreeMap<String, BTreeSet<u64>> {
    let mut all: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    for survey in &found.surveys {
        let done = survey.sizes();
        let left_out = survey.sessions.iter().flat_map(|session| session.skipped.keys());
        for size in left_out.filter(|size| !done.contains(size)) {
            all.entry(survey.ends.to_string()).or_default().insert(*size);
        }
    }
    all
}

/// Formats whether the machine has changed since the profile was measured.
pub fn sentinel(looks: &[SentinelLook]) -> String {
    let mut text = String::new();
    for look in looks.iter().filter(|look| look.drifted) {
        let _ = writeln!(
            text,
            "drift: {}, {} at {}: ratio to the reference was {} in the profile, and is {} now",
            look.pair,
            look.way,
            Size(look.size),
            with_interval(&look.was),
            with_interval(&look.is),
        );
    }
    match (looks.len(), text.is_empty()) {
        (0, _) => {
            "drift: not checked, because no entry of the profile can be measured again here\n"
                .to_owned()
        }
        (count, true) => {
            let cells = quantity::count(count as u64, "entry", "entries");
            format!("drift: none, checked with {cells} of the profile\n")
        }
        _ => text + "hint: the profile may be out of date; run `thalweg tune`\n",
    }
}

/// Formats the mean, 95th percentile and worst regret for each pair. For comparison, also formats the unavoidable
/// regret, and the regret of always using one mechanism.
pub fn regret(checked: &SurveyCheck) -> String {
    let mut rows = table(&["  PAIR", "SIZES", "MEAN", "P95", "WORST", "AT", "CHOSEN THERE"]);
    let percent = |x: f64| format!("{:+.1} %", x * 100.0);
    let columns = |s: &RegretSpread| [percent(s.mean), percent(s.p95), percent(s.worst)];
    for regret in &checked.regrets {
        let sharing = if regret.zero_copy { ", --zero-copy" } else { "" };
        let worst = regret.points.iter().max_by(|a, b| a.regret.total_cmp(&b.regret));
        let over = regret.pair.sink_words(regret.sink_state);
        let name = format!("  {}, {}{over}{sharing}", regret.pair, regret.load.name());
        let mut row = vec![name, regret.planner.sizes.to_string()];
        row.extend(columns(&regret.planner));
        row.push(worst.map_or(String::new(), |point| Size(point.size).to_string()));
        row.push(worst.map_or(String::new(), |point| point.chosen.to_string()));
        rows.add_row(row);
        let mut other = |name: String, spread: &RegretSpread| {
            let mut row = vec![name, spread.sizes.to_string()];
            row.extend(columns(spread));
            row.extend([String::new(), String::new()]);
            rows.add_row(row);
        };
        other("    best in hindsight".to_owned(), &regret.floor);
        for (way, spread) in &regret.always {
            other(format!("    always {way}"), spread);
        }
    }
    let unscored: usize = checked.regrets.iter().map(|regret| regret.unscored.len()).sum();
    let unscored = if unscored == 0 {
        String::new()
    } else {
        let sizes = quantity::count(unscored as u64, "size", "sizes");
        format!("regret unknown for {sizes}: too few rounds (raise --budget), or a failed method\n")
    };
    let took = Duration::try_from_secs_f64(checked.seconds).unwrap_or_default();
    format!(
        "regret (time beyond that of the best method) on sizes that are not in the profile\n\
         {}{unscored}{}\n",
        render(&rows),
        quantity::duration(took)
    )
}

/// Formats the regret for distributions of sizes that were not used for tuning.
pub fn held_out(held: &[HeldOut]) -> String {
    if held.is_empty() {
        return String::new();
    }
    let mut rows =
        table(&["  SIZES OF", "IN", "REGRET", "BEST IN HINDSIGHT", "ALWAYS LIBC", "BEST"]);
    let percent = |x: f64| format!("{:+.1} %", x * 100.0);
    for one in held {
        let point = &one.point;
        let libc = point.always.get(thalweg_core::profile::LIBC).copied();
        rows.add_row([
            format!("  {}", one.distribution),
            one.residency.clone(),
            percent(point.regret),
            percent(point.floor),
            libc.map_or(String::new(), percent),
            point.best[0].to_string(),
        ]);
    }
    format!(
        "regret of `tuned` on other distributions of sizes (google/fleetbench)\n{}",
        render(&rows)
    )
}

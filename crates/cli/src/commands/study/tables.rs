//! Text output of a result: claims, then variants, then their ratios.

use std::{collections::BTreeMap, fmt::Write};
use thalweg_core::{Guarantees, profile::Ratio};
use thalweg_lab::{
    report,
    study::{
        file::{ArmOrigin, StudyFile},
        result::{
            ArmResult, ClaimEvidence, ClaimResult, ClaimVerdict, Condition, RatioResult,
            StudyResult,
        },
        tally::Tallies,
    },
};
use thalweg_measure::load::BackgroundLoad;
use thalweg_measure::{
    outcome::RatioOutcome,
    sample::{CallsKind, SampleMetric},
    stats::{RatioVerdict, says_nothing},
};

use crate::output::{
    paint::{self, Tint},
    quantity,
    ratio::NOT_ENOUGH,
    table::{render, table},
    wrap,
};
use std::time::Duration;

/// Formats a whole result.
pub fn result(result: &StudyResult, study: Option<&StudyFile>, color: bool) -> String {
    let title = format!("{}  {}", result.study, result.title);
    let mut text = format!("{}\n", paint::strong(&title, color));
    text.push_str(&wrap::wrapped(&how(result), 0));
    for claim in &result.claims {
        text.push('\n');
        text.push_str(&claim_text(claim, study, color));
    }
    text.push_str(&today(result, study));
    for place in places(result) {
        text.push('\n');
        text.push_str(&place_text(result, place, color));
    }
    text.push('\n');
    text.push_str(&wrap::wrapped(&noise(result), 0));
    if result.arms.iter().any(|arm| guarantee_name(arm.promises) == "shares") {
        let legend = "guarantee: copy = the copy stays as it is when the source changes later; shares = it may change with \
                      the source, and the variant does less work.";
        text.push_str(&wrap::wrapped(legend, 0));
    }
    if result.arms.iter().any(|arm| arm.calls_kind == Some(CallsKind::ReadWrite)) {
        let legend = "calls/GB: rw = only read and write calls, as counted by the kernel for other \
                      programs.";
        text.push_str(&wrap::wrapped(legend, 0));
    }
    text
}

/// Formats one line per study.
pub fn summary(results: &[StudyResult], color: bool) -> String {
    let mut text = format!("\n{}\n", paint::strong("all studies", color));
    let mut all = Tallies::default();
    for result in results {
        let own = Tallies::of(&result.claims);
        let _ = writeln!(text, "{:<8} {}", result.study, own.words());
        all = all.and(own);
    }
    let _ = writeln!(text, "{:<8} {}", "together", all.words());
    text
}

/// Formats the conditions of the measurement.
fn how(result: &StudyResult) -> String {
    let protocol = &result.protocol;
    let machine = |key: &str| result.conditions["machine"][key].as_str().unwrap_or("?").to_owned();
    let pinned = if protocol.pinned.is_empty() { "not pinned" } else { "pinned" };
    let more = protocol.extensions_text();
    let load = result.conditions["load_average"].as_str().unwrap_or("?");
    format!(
        "{}, {} cores, Linux {}; load average {load} before; {pinned}. {}: {} sessions of {} rounds{more}, \
         samples of {}; took {}, started {}.",
        machine("cpu"),
        machine("cores"),
        machine("kernel"),
        protocol.preset,
        protocol.sessions,
        protocol.rounds,
        quantity::duration(
            Duration::try_from_secs_f64(protocol.sample_seconds).unwrap_or_default()
        ),
        quantity::duration(Duration::try_from_secs_f64(protocol.took_seconds).unwrap_or_default()),
        protocol.began,
    )
}

/// Formats the claims: for each one the verdicts, the claim and its figure.
pub fn claims(result: &StudyResult, study: Option<&StudyFile>, color: bool) -> String {
    let title = format!("{}  {}", result.study, result.title);
    let mut text = format!("{}\n", paint::strong(&title, color));
    for claim in &result.claims {
        text.push_str(&claim_head(claim, study, color));
        if claim.verdict == ClaimVerdict::NotRunnable {
            text.push_str(&wrap::wrapped(&claim.reason, 4));
        }
    }
    text.push_str(&today(result, study));
    if result.claims.is_empty() {
        text.push_str("no claims; -v shows the measurements\n");
    }
    text
}

/// Formats the fastest methods of today for the tasks of the study.
fn today(result: &StudyResult, study: Option<&StudyFile>) -> String {
    let answers = study.map_or_else(Vec::new, |study| report::today(study, result));
    let lines: String = answers.iter().map(|answer| wrap::wrapped(answer, 4)).collect();
    if lines.is_empty() { lines } else { format!("the fastest methods today:\n{lines}") }
}

/// Formats the verdicts, the article's own words, the claim and its figure.
fn claim_head(claim: &ClaimResult, study: Option<&StudyFile>, color: bool) -> String {
    let word = verdict(claim.verdict, color);
    let words = match (&claim.wider, claim.is_goal()) {
        (_, true) => format!("{word} (our own goal)"),
        (None, false) => format!("as published: {word}"),
        (Some(wider), false) => {
            let wider = verdict(wider.verdict, color);
            format!("as published: {word}; under modern conditions: {wider}")
        }
    };
    let mut text = format!("{} {words}\n", paint::strong(&claim.id, color));
    let known = study.and_then(|study| study.claims.iter().find(|known| known.id == claim.id));
    if let Some(quote) = known.and_then(|known| known.quote.as_ref()) {
        text.push_str(&wrap::wrapped(&format!("\"{quote}\""), 4));
    }
    text.push_str(&wrap::wrapped(&claim.text, 4));
    let measured = measured(claim);
    let published = claim.published.as_ref().map(|published| format!("published {published}"));
    let figures: Vec<String> = [measured, published].into_iter().flatten().collect();
    text.push_str(&wrap::wrapped(&figures.join("; "), 4));
    text
}

/// Formats the figure that was measured as published, otherwise the first one under modern conditions.
fn measured(claim: &ClaimResult) -> Option<String> {
    let wider = claim.wider.as_ref().and_then(|wider| Some((wider, wider.evidence.first()?)));
    let (verdict, place, figure) = match (claim.measured, wider) {
        (None, Some((wider, first))) => {
            let figure = (first.measured?, first.lo, first.hi);
            (wider.verdict, " under modern conditions", figure)
        }
        (measured, _) => (claim.verdict, "", (measured?, claim.lo, claim.hi)),
    };
    let is_open = verdict == ClaimVerdict::Undecided;
    Some(match figure {
        // A decided claim keeps its range even if it is wide, because a claim about a probe may be decided by a wide
        // range.
        (ratio, Some(lo), Some(hi)) if is_open && says_nothing(&Ratio { ratio, lo, hi }) => {
            NOT_ENOUGH.to_owned()
        }
        (value, Some(lo), Some(hi)) => {
            format!("measured{place} {} [{}, {}]", number(value), number(lo), number(hi))
        }
        (value, ..) => format!("measured{place} {}", number(value)),
    })
}

/// Formats a claim with its reasons.
fn claim_text(claim: &ClaimResult, study: Option<&StudyFile>, color: bool) -> String {
    let mut text = claim_head(claim, study, color);
    if let Some(check) = &claim.source_check {
        text.push_str(&wrap::wrapped(&format!("figures of the article: {check}"), 4));
    }
    text.push_str(&wrap::wrapped(&format!("as published: {}", claim.reason), 4));
    if let Some(wider) = &claim.wider {
        text.push_str(&wrap::wrapped(&format!("under modern conditions: {}", wider.reason), 4));
    }
    for flip in &claim.flips {
        text.push_str(&wrap::wrapped(&flip_text(flip), 4));
    }
    text
}

/// Returns the name of a verdict in its colour.
fn verdict(verdict: ClaimVerdict, color: bool) -> String {
    let word = verdict.name();
    match verdict {
        ClaimVerdict::Reproduced => paint::tinted(word, Tint::Green, color),
        ClaimVerdict::Contradicted => paint::tinted(word, Tint::Red, color),
        ClaimVerdict::Undecided => paint::tinted(word, Tint::Yellow, color),
        ClaimVerdict::NotRunnable => word.to_owned(),
    }
}

/// Formats the verdict on the claim with another parameter.
fn flip_text(flip: &ClaimEvidence) -> String {
    let word = match flip.verdict {
        ClaimVerdict::Reproduced => "holds",
        ClaimVerdict::Contradicted => "does not hold",
        ClaimVerdict::Undecided => "undecided",
        ClaimVerdict::NotRunnable => "not runnable",
    };
    format!("- {word} with {}", flip.text)
}

fn places(result: &StudyResult) -> Vec<&Condition> {
    let mut places: Vec<&Condition> = Vec::new();
    let missing = result.missing.iter().map(|missing| &missing.place);
    for place in result.arms.iter().map(|arm| &arm.place).chain(missing) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

fn place_text(result: &StudyResult, place: &Condition, color: bool) -> String {
    let load = if place.load == BackgroundLoad::Idle {
        String::new()
    } else {
        format!(", {}", place.load.name())
    };
    let title = format!("{} {}{load}", place.cell, place.size);
    let mut text = format!("{}\n", paint::strong(&title, color));
    let arms: Vec<&ArmResult> = result.arms.iter().filter(|arm| arm.place == *place).collect();
    let most = arms.iter().map(|arm| arm.gb_per_s).fold(0.0, f64::max);
    let mut head =
        vec!["variant", "guarantee", "GB/s", "", "CPU s/GB", "faults/GB", "calls/GB", "disturbed"];
    // The column `reader` has the part of the CPU time that the reader at the other end used.
    let has_far = arms.iter().any(|arm| arm.far_cpu_s_per_gb.is_some());
    if has_far {
        head.insert(5, "reader");
    }
    let mut rows = table(&head);
    for arm in &arms {
        let taken: usize = arm.sessions.iter().map(|session| session.samples.len()).sum();
        let marked =
            if arm.marked == 0 { String::new() } else { format!("{}/{taken}", arm.marked) };
        let mut row = vec![
            name(arm),
            guarantee(arm),
            gb_per_s(arm.gb_per_s),
            bar(arm.gb_per_s, most, 8),
            number(arm.cpu_s_per_gb),
            number(arm.faults_per_gb.round()),
            calls(arm),
            marked,
        ];
        if has_far {
            row.insert(5, arm.far_cpu_s_per_gb.map_or(String::new(), number));
        }
        rows.add_row(row);
    }
    if !arms.is_empty() {
        text.push_str(&render(&rows));
    }
    for (reason, names) in uncounted(&arms) {
        text.push_str(&wrap::wrapped(&format!("calls of {names} not counted: {reason}"), 1));
    }
    for missing in result.missing.iter().filter(|missing| missing.place == *place) {
        text.push_str(&wrap::wrapped(&format!("{} not run: {}", missing.arm, missing.reason), 1));
    }
    text.push_str(&ratios(result, place));
    text
}

/// Formats the number of calls, with a suffix if the kernel counted only reads and writes.
fn calls(arm: &ArmResult) -> String {
    let sign = if arm.calls_kind == Some(CallsKind::ReadWrite) { " rw" } else { "" };
    arm.calls_per_gb.map_or(String::new(), |calls| format!("{}{sign}", number(calls.round())))
}

/// Returns the reasons why calls were not counted, with the variants for each.
fn uncounted(arms: &[&ArmResult]) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for arm in arms.iter().filter(|arm| arm.calls_per_gb.is_none()) {
        let Some(reason) = &arm.calls_uncounted else { continue };
        let names = all.entry(reason.clone()).or_default();
        *names = if names.is_empty() { arm.name.clone() } else { format!("{names}, {}", arm.name) };
    }
    all
}

/// Formats every variant relative to the first: wall time, CPU time, and whether their guarantees differ.
fn ratios(result: &StudyResult, place: &Condition) -> String {
    let own: Vec<&RatioResult> =
        result.ratios.iter().filter(|ratio| ratio.place == *place).collect();
    let Some(first) = own.first() else { return String::new() };
    let mut rows = table(&["", "wall time", "", "CPU time", "", ""]);
    for clock in own.iter().filter(|ratio| ratio.metric == SampleMetric::Wall) {
        let cpu = own.iter().find(|ratio| ratio.metric == SampleMetric::Cpu && ratio.a == clock.a);
        let (figure, word) =
            cpu.map_or((String::new(), String::new()), |cpu| figure(cpu, result.noise));
        let (clock_figure, clock_word) = self::figure(clock, result.noise);
        let promises = if clock.same_promises { "" } else { "different guarantee" };
        rows.add_row([
            clock.a.clone(),
            clock_figure,
            clock_word,
            figure,
            word,
            promises.to_owned(),
        ]);
    }
    format!("{}{}", wrap::wrapped(&format!("time relative to {}:", first.b), 0), render(&rows))
}

fn figure(ratio: &RatioResult, noise: f64) -> (String, String) {
    let r = &ratio.ratio;
    if says_nothing(r) {
        return (NOT_ENOUGH.to_owned(), String::new());
    }
    let interval = format!("{} [{}, {}]", number(r.ratio), number(r.lo), number(r.hi));
    let word = match ratio.verdict {
        RatioVerdict::NoDifferenceShown => {
            let smallest = RatioOutcome { ratio: *r, noise }.smallest();
            format!("less than {:.0} %", smallest * 100.0)
        }
        word => word.to_string(),
    };
    (interval, word)
}

fn name(arm: &ArmResult) -> String {
    match arm.origin {
        ArmOrigin::Published => arm.name.clone(),
        ArmOrigin::Fair => format!("{} +", arm.name),
        ArmOrigin::Baseline => format!("{} (baseline)", arm.name),
    }
}

/// Formats the guarantee of a variant, and the observed behaviour if it differs.
fn guarantee(arm: &ArmResult) -> String {
    let promised = guarantee_name(arm.promises);
    match arm.alias.as_deref() {
        Some("shared") if promised == "copy" => "copy, BROKEN".to_owned(),
        Some("copied") if promised == "shares" => "shares (copied in this run)".to_owned(),
        _ => promised.to_owned(),
    }
}

fn guarantee_name(promises: Option<Guarantees>) -> &'static str {
    match promises {
        None => "-",
        Some(Guarantees { stable: true, private: true, .. }) => "copy",
        Some(Guarantees { stable: true, .. }) => "stable",
        Some(Guarantees { private: true, .. }) => "private",
        Some(_) => "shares",
    }
}

fn noise(result: &StudyResult) -> String {
    let aa = match &result.aa {
        Some(aa) => format!(
            "One variant runs twice per round. The ratio of its two runs is {:.3} [{:.3}, {:.3}], the effect of their order. \"less than \
             6 %\" means that no difference was shown; this run would have shown a difference of 6 %.",
            aa.ratio, aa.lo, aa.hi,
        ),
        None => "One session cannot show a difference.".to_owned(),
    };
    let marked: usize = result.arms.iter().map(|arm| arm.marked).sum();
    let disturbed = match result.disturbed() {
        0 => String::new(),
        count => format!(", {count} of them by other processes"),
    };
    let null = result.null_seconds.map_or(String::new(), |null| {
        let share = null / result.protocol.sample_seconds.max(f64::MIN_POSITIVE) * 100.0;
        format!(" The harness takes {:.2} us per sample ({share:.4} %).", null * 1e6)
    });
    format!(
        "{aa} {}; one in twenty differs by chance.{null} {}{disturbed}; all samples count. Variants with + were \
         added for a fair comparison. Repeat: {}",
        quantity::count(result.comparisons as u64, "comparison", "comparisons"),
        quantity::count(marked as u64, "disturbed sample", "disturbed samples"),
        result.protocol.command
    )
}

/// Formats a number with three significant digits.
fn number(value: f64) -> String {
    let size = value.abs();
    if size >= 100.0 || value.fract() == 0.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else if size >= 1.0 {
        format!("{value:.2}")
    } else if value >= 0.01 || value == 0.0 {
        format!("{value:.3}")
    } else {
        format!("{value:.1e}")
    }
}

/// Formats a rate with three significant digits.
pub fn gb_per_s(rate: f64) -> String {
    if rate >= 1e6 { "-".to_owned() } else { number(rate) }
}

/// Returns a bar with a length that shows the value relative to `most`.
pub fn bar(value: f64, most: f64, columns: usize) -> String {
    let share = if most > 0.0 { (value / most).clamp(0.0, 1.0) } else { 0.0 };
    "=".repeat((share * columns as f64).round() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_lab::study::store::parse_result;

    const SAVED: &str = include_str!("../../../../lab/tests/data/result-1.json");

    #[test]
    fn variants_with_a_weaker_guarantee_are_labelled() {
        let mut saved = parse_result(SAVED.as_bytes()).expect("the golden result");
        let plain = result(&saved, None, false);
        assert!(!plain.contains("different guarantee") && !plain.contains("shares"), "{plain}");
        saved.arms[1].promises = Some(Guarantees::SHARED);
        saved.arms[0].alias = Some("shared".to_owned());
        let name = saved.arms[1].name.clone();
        saved.ratios.iter_mut().filter(|r| r.a == name).for_each(|r| r.same_promises = false);
        let text = result(&saved, None, false);
        assert!(text.contains("different guarantee") && text.contains("shares = it may"), "{text}");
        assert!(text.contains("copy, BROKEN"), "the observed behaviour counts: {text}");
    }

    #[test]
    fn calls_counted_by_the_kernel_and_uncounted_calls_are_labelled() {
        let mut saved = parse_result(SAVED.as_bytes()).expect("the golden result");
        assert!(!result(&saved, None, false).contains("counted"), "no count was tried");
        saved.arms[0].calls_per_gb = Some(5.0);
        assert!(!result(&saved, None, false).contains(" rw"), "counted where they are made");
        saved.arms[0].calls_kind = Some(CallsKind::ReadWrite);
        saved.arms[1].calls_uncounted = Some("this kernel has no /proc/PID/io".to_owned());
        let text = result(&saved, None, false);
        assert!(
            text.contains(" 5 rw") && text.contains("rw = only read and write calls"),
            "{text}"
        );
        let name = &saved.arms[1].name;
        assert!(text.contains(&format!("calls of {name} not counted: this kernel")), "{text}");
    }

    #[test]
    fn colours_add_nothing_but_colour() {
        let saved = parse_result(SAVED.as_bytes()).expect("the golden result");
        let mut text = result(&saved, None, true);
        assert!(text.contains("\x1b[31mcontradicted\x1b[0m"), "{text}");
        for code in ["\x1b[31m", "\x1b[1m", "\x1b[0m"] {
            text = text.replace(code, "");
        }
        assert_eq!(text, result(&saved, None, false));
    }

    #[test]
    fn a_difference_that_is_not_shown_says_what_would_have_been() {
        let mut saved = parse_result(SAVED.as_bytes()).expect("the golden result");
        let ratio = |ratio, lo, hi| Ratio { ratio, lo, hi };
        let one =
            saved.ratios.iter_mut().find(|one| one.metric == SampleMetric::Wall).expect("a ratio");
        (one.ratio, one.verdict) = (ratio(1.0, 0.8, 1.25), RatioVerdict::NoDifferenceShown);
        saved.noise = 0.03;
        let text = result(&saved, None, false);
        assert!(text.contains("less than 25 %") && text.contains("the effect of their"), "{text}");
        let one =
            saved.ratios.iter_mut().find(|one| one.metric == SampleMetric::Wall).expect("a ratio");
        one.ratio = ratio(1.0, 0.2, 4.0);
        assert!(result(&saved, None, false).contains("not enough data"));
    }

    #[test]
    fn bars_and_figures_are_short() {
        assert_eq!((bar(5.0, 10.0, 8), bar(1.0, 0.0, 8)), ("====".to_owned(), String::new()));
        assert_eq!((number(0.257_12), number(78.123)), ("0.257".to_owned(), "78.1".to_owned()));
    }
}

//! Formats numbers and names for a report: short, and never `NaN` or `inf`.

use std::time::Duration;
use thalweg_core::{Guarantees, profile::Ratio, quantity};

use crate::study::{
    file::ArmOrigin,
    result::{ClaimVerdict, Condition, StudyResult},
};
use thalweg_measure::load::BackgroundLoad;
use thalweg_measure::{sample::SampleMetric, stats::RatioVerdict};

/// Formats a number with at least three significant digits: `0.0123`, `1.27`, `12.7`, `1270`, `3.20e9`. Returns `-` if
/// it is not finite.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    let size = value.abs();
    if size == 0.0 {
        "0".to_owned()
    } else if !(1e-4..1e7).contains(&size) {
        format!("{value:.2e}")
    } else {
        let whole = size.log10().floor() as i32;
        let places = usize::try_from(2 - whole).unwrap_or(0);
        format!("{value:.places$}")
    }
}

/// Formats a value that may be absent.
pub fn perhaps(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), number)
}

/// Returns text like `0.43 [0.41, 0.45]`.
pub fn interval(value: f64, lo: f64, hi: f64) -> String {
    format!("{} [{}, {}]", number(value), number(lo), number(hi))
}

/// Formats a measured figure with its interval, if it has one.
pub fn measured(value: Option<f64>, lo: Option<f64>, hi: Option<f64>) -> Option<String> {
    Some(match (value?, lo, hi) {
        (value, Some(lo), Some(hi)) => interval(value, lo, hi),
        (value, ..) => number(value),
    })
}

/// Formats a ratio with its interval.
pub fn ratio(ratio: &Ratio) -> String {
    interval(ratio.ratio, ratio.lo, ratio.hi)
}

/// Returns text like `at least 2` or `0.95 to 1.05`.
pub fn range([lo, hi]: [f64; 2]) -> String {
    match (lo > 0.0 && lo.is_finite(), hi.is_finite()) {
        (true, true) => format!("{} to {}", number(lo), number(hi)),
        (true, false) => format!("at least {}", number(lo)),
        (false, true) => format!("at most {}", number(hi)),
        (false, false) => "any".to_owned(),
    }
}

pub fn percent(share: f64) -> String {
    format!("{} %", number(share * 100.0))
}

/// Formats a duration given in seconds.
pub fn duration(seconds: f64) -> String {
    quantity::duration(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// Formats an RFC 3339 time like `2026-11-22 00:20 UTC`; returns other text unchanged.
pub fn moment(at: &str) -> String {
    match (at.get(..10), at.get(10..11), at.get(11..16), at.ends_with('Z')) {
        (Some(day), Some("T"), Some(time), true) => format!("{day} {time} UTC"),
        _ => at.to_owned(),
    }
}

/// Truncates text to this number of characters, with an ellipsis.
pub fn short(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    kept.trim_end().to_owned() + "\u{2026}"
}

/// Describes the guarantees of an arm (a compared variant): `stable, private`, `not stable, shared pages`.
pub fn promises(promises: Option<Guarantees>) -> String {
    let Some(all) = promises else { return "not applicable".to_owned() };
    let stable = if all.stable { "stable" } else { "not stable" };
    let private = if all.private { "private" } else { "shared pages" };
    let durable = if all.durable { ", durable" } else { "" };
    format!("{stable}, {private}{durable}")
}

/// Returns `true` if later writes to the source may show in the copy, or if pages stay shared.
pub fn promises_less(promises: Option<Guarantees>) -> bool {
    promises.is_some_and(|all| !all.cover(Guarantees::COPIED))
}

pub fn load(load: BackgroundLoad) -> &'static str {
    match load {
        BackgroundLoad::Idle => "idle",
        BackgroundLoad::Busy => "busy: a busy thread on every core but one",
        BackgroundLoad::Quarter => "quarter: one thread busy a quarter of the time",
        BackgroundLoad::Writeback => "writeback: a file is dirtied and written back",
    }
}

/// Returns the short name of a load.
pub fn load_name(name: BackgroundLoad) -> &'static str {
    load(name).split(':').next().unwrap_or_default()
}

/// Describes the condition under which a figure was measured.
pub fn condition(place: &Condition) -> String {
    format!("{}, {}, {}", place.cell, place.size, load_name(place.load))
}

pub fn origin(origin: ArmOrigin) -> &'static str {
    match origin {
        ArmOrigin::Published => "as published",
        ArmOrigin::Fair => "added",
        ArmOrigin::Baseline => "baseline",
    }
}

pub fn comparison(verdict: RatioVerdict) -> &'static str {
    match verdict {
        RatioVerdict::Faster => "less",
        RatioVerdict::Slower => "more",
        RatioVerdict::NoDifferenceShown => "no difference shown",
    }
}

pub fn verdict(verdict: ClaimVerdict) -> &'static str {
    match verdict {
        ClaimVerdict::Reproduced => "reproduced",
        ClaimVerdict::Contradicted => "contradicted",
        ClaimVerdict::Undecided => "undecided",
        ClaimVerdict::NotRunnable => "not runnable",
    }
}

/// Returns the symbol next to the word, so that colour is not the only distinction.
pub fn sign(verdict: ClaimVerdict) -> &'static str {
    match verdict {
        ClaimVerdict::Reproduced => "\u{2713}",
        ClaimVerdict::Contradicted => "\u{2717}",
        ClaimVerdict::Undecided => "?",
        ClaimVerdict::NotRunnable => "\u{2013}",
    }
}

/// Returns the suffix of the CSS class.
pub fn class(verdict: ClaimVerdict) -> &'static str {
    match verdict {
        ClaimVerdict::Reproduced => "good",
        ClaimVerdict::Contradicted => "bad",
        ClaimVerdict::Undecided => "open",
        ClaimVerdict::NotRunnable => "none",
    }
}

/// Returns the name of a metric.
pub fn metric_name(metric: SampleMetric) -> &'static str {
    match metric {
        SampleMetric::Wall => "wall time",
        SampleMetric::Cpu => "CPU time",
    }
}

/// Returns the CPU and the kernel, as far as the conditions contain them.
pub fn machine(result: &StudyResult) -> String {
    let machine = &result.conditions["machine"];
    let text = |key: &str| machine[key].as_str().map(str::to_owned);
    let kernel = text("kernel").map(|kernel| format!("Linux {kernel}"));
    let cores = text("cores").map(|cores| format!("{cores} cores"));
    let known: Vec<String> = [text("cpu"), cores, kernel].into_iter().flatten().collect();
    if known.is_empty() { "unknown".to_owned() } else { known.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_are_numbers() {
        let all = [0.0, 0.012_34, 0.257, 1.274, 12.74, 1274.0, 3.2e9, f64::NAN, f64::INFINITY];
        let shown: Vec<String> = all.into_iter().map(number).collect();
        assert_eq!(shown, ["0", "0.0123", "0.257", "1.27", "12.7", "1274", "3.20e9", "-", "-"]);
        assert_eq!(range([2.0, f64::INFINITY]), "at least 2.00");
        assert_eq!(range([0.0, 0.5]), "at most 0.500");
        assert_eq!(duration(3723.0), "1:02:03");
        assert_eq!(duration(0.020), "20.0 ms");
    }

    #[test]
    fn names_are_cut_between_characters() {
        assert_eq!(short("splice", 6), "splice");
        assert_eq!(short("\u{e9}\u{e9}\u{e9}\u{e9}", 3), "\u{e9}\u{e9}\u{2026}");
        assert_eq!(moment("2026-11-22T00:20:30Z"), "2026-11-22 00:20 UTC");
        assert_eq!(
            moment("\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}TZ"),
            "\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}TZ"
        );
    }
}

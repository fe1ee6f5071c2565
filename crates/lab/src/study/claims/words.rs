//! Formats figures and ranges as text.

use crate::study::{file::ClaimCondition, result::Condition};
use thalweg_core::profile::Ratio;
use thalweg_measure::load::BackgroundLoad;
use thalweg_measure::sample::SampleMetric;

pub fn arms_text([a, b]: &[String; 2], of: SampleMetric) -> String {
    format!("{a} to {b}, {}", metric(of))
}

pub fn of(note: Option<&String>, what: &str, where_: &str) -> String {
    match note {
        Some(note) => format!("{note}: {what}, {where_}"),
        None => format!("{what}, {where_}"),
    }
}

/// Formats a number with at most three decimals: `0.257`, `1.27`, `12.7`, `1270`.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if size >= 100.0 || (size >= 1.0 && value.fract() == 0.0) {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else if size >= 1.0 {
        format!("{value:.2}")
    } else if size == 0.0 {
        "0".to_owned()
    } else {
        format!("{value:.3}")
    }
}

/// Returns text like `0.257 [0.254, 0.263]`, or `no information (from 0.1 to 3)` for a too wide
/// interval.
pub fn interval(ratio: &Ratio, no_information: bool) -> String {
    let [middle, lo, hi] = [ratio.ratio, ratio.lo, ratio.hi].map(number);
    if no_information {
        format!("no information (from {lo} to {hi})")
    } else {
        format!("{middle} [{lo}, {hi}]")
    }
}

/// Returns the interval after the correction for multiple comparisons, as text.
pub fn as_one_of(many: usize, joint: &Ratio) -> String {
    let (lo, hi) = (number(joint.lo), number(joint.hi));
    format!("corrected for {many} comparisons (Bonferroni), its interval is [{lo}, {hi}]")
}

/// The fraction of disturbed samples from which the text mentions them.
const MUCH: f64 = 0.1;

/// Returns `; other processes disturbed 40 % of its samples`, or an empty text below `MUCH`.
pub fn disturbed(share: f64) -> String {
    if share < MUCH {
        return String::new();
    }
    format!("; other processes disturbed {:.0} % of its samples", share * 100.0)
}

/// Returns text like `; about 12 sessions would decide`, or an empty text without an estimate.
pub fn sessions(needed: Option<usize>) -> String {
    needed.map_or_else(String::new, |needed| format!("; about {needed} sessions would decide"))
}

/// Returns text like `at least 2`.
pub fn range([lo, hi]: [f64; 2]) -> String {
    match (lo.is_finite() && lo > 0.0, hi.is_finite()) {
        _ if (lo - hi).abs() < f64::EPSILON => format!("exactly {}", number(lo)),
        (true, true) => format!("{} to {}", number(lo), number(hi)),
        (true, false) => format!("at least {}", number(lo)),
        (false, true) => format!("at most {}", number(hi)),
        (false, false) => "anything".to_owned(),
    }
}

/// Returns the name of a metric in text.
pub fn metric(metric: SampleMetric) -> &'static str {
    match metric {
        SampleMetric::Wall => "clock",
        SampleMetric::Cpu => "processor",
    }
}

/// Returns text like `zero-null 16GiB`, with the load unless it is idle.
pub fn condition(place: &Condition) -> String {
    at(&place.cell, Some(&place.size), place.load)
}

/// Like [`condition`], for a condition that a check names.
pub fn named(place: &ClaimCondition) -> String {
    at(&place.cell, place.size.as_deref(), place.load)
}

fn at(cell: &str, size: Option<&str>, load: BackgroundLoad) -> String {
    let mut text = cell.to_owned();
    if let Some(size) = size {
        text.push(' ');
        text.push_str(size);
    }
    if load != BackgroundLoad::Idle {
        text.push_str(", ");
        text.push_str(load.name());
    }
    text
}

/// Returns a published figure as text.
pub fn published(value: &toml::Value) -> String {
    match value {
        // `to_string` of the TOML value would print `2.0` for 2.
        toml::Value::Float(value) => value.to_string(),
        toml::Value::String(text) => text.clone(),
        toml::Value::Array(values) => values.iter().map(published).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

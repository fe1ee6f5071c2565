//! The content of the published article: parameters, tables, and the ratios that a figure can show next to ours.

use serde::Serialize;
use std::collections::BTreeMap;
use toml::Value;

use super::{
    table::{ReportTable, TableCell},
    words,
};
use crate::study::{
    file::{Claim, ClaimCheck, ClaimCondition, StudyFile},
    result::RatioResult,
};
use thalweg_measure::sample::SampleMetric;

/// Published ratios by arm (a compared variant), reference, cell, size, load and metric, in the format of [`key`].
pub type PublishedRatios = BTreeMap<String, f64>;

/// The article, in the form that the templates use.
#[derive(Clone, Debug, Serialize)]
pub struct SourceView {
    pub title: String,
    pub parameters: Vec<(String, String)>,
    pub tables: Vec<ReportTable>,
}

pub fn of(study: &StudyFile) -> SourceView {
    let parameters = study.source.parameters.iter();
    let tables = study.source.tables.iter().map(|table| {
        let columns: Vec<&str> = table.columns.iter().map(String::as_str).collect();
        let mut shown = ReportTable::new(table.name.clone(), &columns);
        for row in &table.rows {
            shown.row(row.iter().map(|value| match value {
                Value::Integer(_) | Value::Float(_) => TableCell::figure(value_text(value)),
                other => value_text(other).into(),
            }));
        }
        shown
    });
    SourceView {
        title: study.source.title.clone(),
        parameters: parameters
            .map(|(name, value)| (name.replace('_', " "), value_text(value)))
            .collect(),
        tables: tables.collect(),
    }
}

/// Returns a value of a study file as text. Figures keep their published notation.
pub fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(all) => all.iter().map(value_text).collect::<Vec<_>>().join(", "),
        Value::Table(table) => {
            let pairs = table.iter().map(|(name, value)| format!("{name}: {}", value_text(value)));
            pairs.collect::<Vec<_>>().join("; ")
        }
        other => other.to_string(),
    }
}

/// Returns the published figure of a claim, if it is a single number.
pub fn figure(claim: &Claim) -> Option<f64> {
    match claim.published.as_ref()? {
        Value::Float(figure) => Some(*figure),
        Value::Integer(figure) => Some(*figure as f64),
        _ => None,
    }
}

/// Returns `true` if a published figure may be shown next to the measured one. Returns `false` if the figure is not
/// positive, or if only its inverse lies in the range of the claim: the article then published the inverse ratio.
pub fn comparable(published: f64, [lo, hi]: [f64; 2]) -> bool {
    let holds = |value: f64| (lo..=hi).contains(&value);
    published > 0.0 && (holds(published) || !holds(1.0 / published))
}

/// Returns the published ratios of a study by arms and condition.
pub fn published_ratios(study: Option<&StudyFile>) -> PublishedRatios {
    let mut all = PublishedRatios::new();
    let Some(study) = study else { return all };
    for claim in &study.claims {
        for check in &claim.checks {
            match check {
                ClaimCheck::Ratio { arms, at, metric, within, .. } => {
                    let fit = figure(claim).filter(|f| comparable(*f, *within));
                    if let (Some(size), Some(figure)) = (size_of(study, at), fit) {
                        all.insert(joined(arms, at, &size, *metric), figure);
                    }
                }
                ClaimCheck::Rows { arms, at, metric, published, .. } => {
                    for (size, figure) in published {
                        all.insert(joined(arms, at, size, *metric), *figure);
                    }
                }
                _ => {}
            }
        }
    }
    all
}

fn size_of(study: &StudyFile, at: &ClaimCondition) -> Option<String> {
    let only = || {
        let cell = study.cells.iter().find(|cell| cell.name == at.cell)?;
        (cell.sizes.len() == 1).then(|| cell.sizes[0].clone())
    };
    at.size.clone().or_else(only)
}

fn joined(arms: &[String; 2], at: &ClaimCondition, size: &str, metric: SampleMetric) -> String {
    let [a, b] = arms;
    format!("{a}\n{b}\n{}\n{size}\n{}\n{metric:?}", at.cell, words::load_name(at.load))
}

/// Returns the key of a measured ratio.
pub fn key(ratio: &RatioResult) -> String {
    let (place, metric) = (&ratio.place, ratio.metric);
    let load = words::load_name(place.load);
    format!("{}\n{}\n{}\n{}\n{load}\n{metric:?}", ratio.a, ratio.b, place.cell, place.size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_the_other_way_round_is_no_match() {
        assert!(comparable(2.05, [2.0, f64::INFINITY]));
        assert!(!comparable(2.05, [0.0, 0.5]));
        assert!(comparable(1.019, [0.95, 1.05]));
        assert!(comparable(0.967, [0.98, 1.01]));
        assert!(!comparable(0.0, [0.0, 1.0]));
    }
}

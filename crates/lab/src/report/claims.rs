//! Claims with their verdicts, next to the article's own figures and the parameters that flip the result.

use serde::Serialize;

use super::{
    figure::{Entry, Figure, Scope},
    forest::{self, Frame, Line, Look, Row, band_key, key},
    source,
    svg::Shape,
    table::{Cell, Table},
    words,
};
use crate::study::{
    file::{Check, Claim},
    result::{ClaimResult, ClaimVerdict, Evidence},
};

/// A claim for templates.
#[derive(Clone, Debug, Serialize)]
pub struct ClaimView {
    /// Anchor, unique on the page.
    pub anchor: String,
    pub id: String,
    pub kind: String,
    pub text: String,
    pub badge: Badge,
    pub published: Option<String>,
    pub measured: Option<String>,
    /// The condition to verify.
    pub predicate: Option<String>,
    /// The result of comparing the claim with the article's own table.
    pub source_check: Option<String>,
    pub reason: String,
    pub wider: Option<WiderView>,
    /// `true` for a goal of thalweg, which has no second verdict.
    pub goal: bool,
    /// The cause of the effect.
    pub why: Option<String>,
    pub evidence: Vec<EvidenceView>,
    pub flips: Vec<EvidenceView>,
}

/// The verdict under modern conditions, for templates.
#[derive(Clone, Debug, Serialize)]
pub struct WiderView {
    pub badge: Badge,
    pub reason: String,
    pub evidence: Vec<EvidenceView>,
}

/// A check for templates.
#[derive(Clone, Debug, Serialize)]
pub struct EvidenceView {
    pub text: String,
    pub measured: Option<String>,
    /// The range in which the figure must lie.
    pub within: Option<String>,
    pub badge: Badge,
}

/// A verdict: CSS class, symbol and word.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Badge {
    pub class: &'static str,
    pub sign: &'static str,
    pub word: &'static str,
}

impl Badge {
    pub fn of(verdict: ClaimVerdict) -> Self {
        Self {
            class: words::class(verdict),
            sign: words::sign(verdict),
            word: words::verdict(verdict),
        }
    }
}

pub fn views(scope: &Scope<'_>) -> Vec<ClaimView> {
    let view = |(number, claim): (usize, &ClaimResult)| ClaimView {
        anchor: format!("{}-k{number}", scope.id),
        id: claim.id.clone(),
        kind: claim.kind.clone(),
        text: claim.text.clone(),
        badge: Badge::of(claim.verdict),
        published: claim.published.clone(),
        measured: words::measured(claim.measured, claim.lo, claim.hi),
        predicate: claim.predicate.clone(),
        source_check: claim.source_check.as_ref().map(|text| text.replace('-', " ")),
        reason: claim.reason.clone(),
        wider: claim.wider.as_ref().map(|wider| WiderView {
            badge: Badge::of(wider.verdict),
            reason: wider.reason.clone(),
            evidence: wider.evidence.iter().map(evidence).collect(),
        }),
        goal: claim.is_goal(),
        why: known(scope, claim).and_then(|known| known.why.clone()),
        evidence: claim.evidence.iter().map(evidence).collect(),
        flips: claim.flips.iter().map(evidence).collect(),
    };
    scope.result.claims.iter().enumerate().map(view).collect()
}

fn evidence(found: &Evidence) -> EvidenceView {
    EvidenceView {
        text: found.text.clone(),
        measured: words::measured(found.measured, found.lo, found.hi),
        within: found.within.map(words::range),
        badge: Badge::of(found.verdict),
    }
}

fn known<'s>(scope: &Scope<'s>, claim: &ClaimResult) -> Option<&'s Claim> {
    scope.study?.claims.iter().find(|known| known.id == claim.id)
}

/// Returns a figure of the claims that are ratios: the range, the published value and the measured value of each.
pub fn figure(scope: &Scope<'_>) -> Option<Figure> {
    let mut lines = Vec::new();
    let mut table = Table::new(
        "Claims that are ratios",
        &["Claim", "What was compared", "Published", "To hold", "Measured [95 %]", "Verdict"],
    );
    for claim in scope.result.claims.iter().filter(|claim| is_ratio(scope, claim)) {
        let published = published(scope, claim);
        let rows: Vec<(usize, &Evidence)> =
            claim.evidence.iter().chain(&claim.flips).enumerate().collect();
        let rows = rows.into_iter().filter_map(|(number, found)| {
            let value = [found.measured?, found.lo?, found.hi?];
            let flips = number >= claim.evidence.len();
            let published = published.filter(|_| number == 0);
            Some((row(found, value, (flips, published)), flips, found, published))
        });
        let rows: Vec<_> = rows.collect();
        if rows.is_empty() {
            continue;
        }
        lines.push(Line::Head(format!(
            "{} {}: {}",
            words::sign(claim.verdict),
            words::verdict(claim.verdict),
            claim.id
        )));
        for (line, flips, found, published) in rows {
            table.row(table_row(claim, found, (flips, published)));
            lines.push(Line::Ratio(line));
        }
    }
    if lines.is_empty() {
        return None;
    }
    let frame = Frame {
        id: &format!("{}-claims-plot", scope.id),
        title: &format!("Study {}: claims against measurements", scope.result.study),
        axis: "ratio of costs as the claim puts it",
        noise: scope.result.noise,
    };
    Some(Figure {
        id: format!("{}-claims-figure", scope.id),
        caption: "Claims that are ratios, published and measured".to_owned(),
        note: "The bar under an interval is the range that was to hold.".to_owned(),
        drawings: vec![forest::draw(&lines, &frame)],
        legend: vec![
            Entry::new(key(Shape::Square, "mark good"), "satisfies the claim"),
            Entry::new(key(Shape::Cross, "mark bad"), "violates it"),
            Entry::new(key(Shape::Disc, "mark same"), "undecided"),
            Entry::new(key(Shape::Up, "mark flip"), "another parameter: what flips it"),
            Entry::new(key(Shape::Diamond, "published"), "published"),
            Entry::new(band_key("within", 3.0), "was to hold"),
            Entry::new(band_key("noise", 12.0), "noise of the run"),
        ],
        table,
        folded: false,
    })
}

fn row(found: &Evidence, value: [f64; 3], (flips, published): (bool, Option<f64>)) -> Row {
    let look = match (flips, found.verdict) {
        (true, _) => Look { shape: Shape::Up, class: "mark flip" },
        (_, ClaimVerdict::Reproduced) => Look { shape: Shape::Square, class: "mark good" },
        (_, ClaimVerdict::Contradicted) => Look { shape: Shape::Cross, class: "mark bad" },
        _ => Look { shape: Shape::Disc, class: "mark same" },
    };
    Row { label: found.text.clone(), value, published, within: found.within, look }
}

fn table_row(
    claim: &ClaimResult,
    found: &Evidence,
    (flips, published): (bool, Option<f64>),
) -> Vec<Cell> {
    let badge = Badge::of(found.verdict);
    let word = format!(
        "{} {}{}",
        badge.sign,
        badge.word,
        if flips { ", with another parameter" } else { "" }
    );
    vec![
        claim.id.as_str().into(),
        found.text.as_str().into(),
        Cell::figure(words::perhaps(published)),
        found.within.map_or("-".to_owned(), words::range).into(),
        Cell::figure(words::measured(found.measured, found.lo, found.hi).unwrap_or_default()),
        Cell::styled(word, badge.class),
    ]
}

/// Returns `true` if a claim is decided by ratios only. Only ratios fit on an axis around 1.
fn is_ratio(scope: &Scope<'_>, claim: &ClaimResult) -> bool {
    match known(scope, claim) {
        Some(known) => !known.checks.is_empty() && known.checks.iter().all(is_ratio_check),
        None => claim.kind == "ratio",
    }
}

fn is_ratio_check(check: &Check) -> bool {
    !matches!(check, Check::Probe { .. } | Check::RankCorrelation { .. })
}

/// Returns the published ratio, if it is comparable with the measured one.
pub(super) fn published(scope: &Scope<'_>, claim: &ClaimResult) -> Option<f64> {
    let figure = match known(scope, claim) {
        Some(known) => source::figure(known),
        None => claim.published.as_ref()?.trim().parse().ok(),
    };
    let within = claim.evidence.first()?.within?;
    figure.filter(|figure| source::comparable(*figure, within))
}

//! The claims (tested statements, most of them from a published article) with their verdicts, next to the article's own
//! figures and the parameters that flip the result.

use serde::Serialize;

use super::{chart::Scope, source, words};
use crate::study::{
    file::Claim,
    result::{ClaimEvidence, ClaimResult, ClaimVerdict},
};

/// A claim for templates.
#[derive(Clone, Debug, Serialize)]
pub struct ClaimView {
    /// Anchor, unique on the page.
    pub anchor: String,
    pub id: String,
    pub kind: String,
    pub text: String,
    /// The article's own words.
    pub quote: Option<String>,
    pub badge: Badge,
    pub published: Option<String>,
    pub measured: Option<String>,
    /// The condition to verify.
    pub predicate: Option<String>,
    /// The result of comparing the claim with the article's own table.
    pub source_check: Option<String>,
    pub reason: String,
    pub wider: Option<WiderView>,
    /// `true` if the claim is a goal of thalweg. It then has no verdict under modern conditions.
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

/// A check of a claim, as the report's templates use it.
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
        quote: known(scope, claim).and_then(|known| known.quote.clone()),
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

fn evidence(found: &ClaimEvidence) -> EvidenceView {
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

/// Returns the published ratio, if it is comparable with the measured one.
pub(super) fn published(scope: &Scope<'_>, claim: &ClaimResult) -> Option<f64> {
    let figure = match known(scope, claim) {
        Some(known) => source::figure(known),
        None => claim.published.as_ref()?.trim().parse().ok(),
    };
    let within = claim.evidence.first()?.within?;
    figure.filter(|figure| source::comparable(*figure, within))
}

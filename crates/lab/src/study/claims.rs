//! Turns intervals into verdicts on claims: one verdict "as published", one under modern conditions (`wider`).
//!
//! All checks of a verdict must hold. A contradicted check contradicts the claim if its interval stays outside the
//! range after the correction for multiple comparisons. Otherwise, a check that cannot run on this machine makes the
//! claim not runnable, and a check that this run did not measure leaves it undecided. A single session decides nothing,
//! nor does a difference smaller than the noise of the run.

mod best;
mod correlation;
mod decide;
mod measurements;
mod sessions;
mod several;
mod side;
mod words;

use super::{
    file::{Claim, ClaimCheck, StudyFile},
    result::{ClaimEvidence, ClaimResult, ClaimVerdict, StudyResult, Wider},
};
use measurements::{RatioFigure, StudyMeasurements};

/// The result of one check.
struct JudgedCheck {
    evidence: ClaimEvidence,
    why: String,
    /// The figure behind the verdict; `None` if the verdict does not come from an interval.
    figure: Option<RatioFigure>,
    /// The number of candidates from which this result was picked as the worst.
    of: usize,
}

impl JudgedCheck {
    fn plain(evidence: ClaimEvidence, why: String) -> Self {
        Self { evidence, why, figure: None, of: 1 }
    }
}

/// Returns the verdict on every claim of a study. `result` must be complete except for its claims.
pub fn judge(study: &StudyFile, result: &StudyResult) -> Vec<ClaimResult> {
    study
        .claims
        .iter()
        .map(|claim| judge_one(claim, &StudyMeasurements { study, result }))
        .collect()
}

fn judge_one(claim: &Claim, board: &StudyMeasurements<'_>) -> ClaimResult {
    let all = |checks: &[ClaimCheck], from: usize| -> Vec<JudgedCheck> {
        let numbered = checks.iter().enumerate();
        let judged = numbered.map(|(n, check)| decide::check(board, &claim.id, from + n, check));
        judged.flatten().collect()
    };
    let published = CombinedChecks::of(all(&claim.checks, 0), board.noise());
    let (verdict, reason) = match &claim.not_runnable {
        Some(reason) => (ClaimVerdict::NotRunnable, reason.clone()),
        None => (published.verdict, published.reason),
    };
    let wider = (!claim.wider.is_empty()).then(|| {
        let said = CombinedChecks::of(all(&claim.wider, claim.checks.len()), board.noise());
        Wider { verdict: said.verdict, reason: said.reason, evidence: said.evidence }
    });
    let flips = all(&claim.flips, claim.checks.len() + claim.wider.len());
    let first = published.evidence.first();
    ClaimResult {
        id: claim.id.clone(),
        kind: claim.kind.clone(),
        text: claim.text.clone(),
        published: claim.published.as_ref().map(words::published),
        predicate: claim.predicate.clone(),
        source_check: claim.source_check.clone(),
        measured: first.and_then(|evidence| evidence.measured),
        lo: first.and_then(|evidence| evidence.lo),
        hi: first.and_then(|evidence| evidence.hi),
        verdict,
        reason,
        evidence: published.evidence,
        wider,
        flips: flips.into_iter().map(|one| one.evidence).collect(),
    }
}

/// The combined result of several checks.
struct CombinedChecks {
    verdict: ClaimVerdict,
    reason: String,
    /// Checks that agree with the verdict come first, so that the report shows their figure.
    evidence: Vec<ClaimEvidence>,
}

impl CombinedChecks {
    fn of(mut judged: Vec<JudgedCheck>, noise: f64) -> Self {
        answer_for_choice(&mut judged, noise);
        let (verdict, reason) = together(&judged);
        judged.sort_by_key(|one| one.evidence.verdict != verdict);
        let evidence = judged.into_iter().map(|one| one.evidence).collect();
        Self { verdict, reason, evidence }
    }
}

/// Widens the intervals if one contradiction among many decides: at 95 %, one interval in twenty is off by chance
/// (Bonferroni). A verdict for which all checks must hold needs no correction, because no single check is picked.
fn answer_for_choice(judged: &mut [JudgedCheck], noise: f64) {
    let many: usize = judged.iter().filter(|one| one.figure.is_some()).map(|one| one.of).sum();
    if many < 2 {
        return;
    }
    for one in judged.iter_mut().filter(|one| one.evidence.verdict == ClaimVerdict::Contradicted) {
        let (Some(figure), Some(within)) = (one.figure, one.evidence.within) else { continue };
        let joint = figure.one_of(many);
        one.evidence.verdict = side::side(&joint, within, noise);
        let said = words::as_one_of(many, &joint.ratio);
        one.why = match one.evidence.verdict {
            ClaimVerdict::Contradicted => format!("{}; {said}", one.why),
            _ => format!("{} without a correction, but {said}", one.why),
        };
    }
}

/// Returns the combined verdict and the explanation of the check that decided it.
fn together(judged: &[JudgedCheck]) -> (ClaimVerdict, String) {
    use ClaimVerdict::{Contradicted, NotRunnable, Reproduced, Undecided};
    let sentence = |one: &JudgedCheck| {
        let disturbed =
            one.figure.map_or_else(String::new, |figure| words::disturbed(figure.disturbed));
        format!("{}; {}{disturbed}", one.evidence.text, one.why)
    };
    for verdict in [Contradicted, NotRunnable, Undecided] {
        let mut these = judged.iter().filter(|one| one.evidence.verdict == verdict);
        if let Some(first) = these.next() {
            let more = these.count();
            let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
            let hold = judged.iter().filter(|one| one.evidence.verdict == Reproduced).count();
            let hold = match hold {
                1.. if verdict == NotRunnable => {
                    format!("; {hold} of {} checks hold", judged.len())
                }
                _ => String::new(),
            };
            return (verdict, format!("{}{more}{hold}", sentence(first)));
        }
    }
    match judged {
        [] => (Undecided, "nothing was checked".to_owned()),
        [one] => (Reproduced, sentence(one)),
        [first, ..] => {
            (Reproduced, format!("all {} checks hold; {}", judged.len(), sentence(first)))
        }
    }
}

#[cfg(test)]
mod tests;

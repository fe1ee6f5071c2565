//! From intervals to verdicts on what was published.
//!
//! All checks of a claim must hold. One that is contradicted contradicts the claim; one that could
//! not be run leaves it open. Nothing is decided by one session, nor by less than the run's noise.

mod best;
mod board;
mod decide;
mod several;
mod side;
mod words;

use super::{
    file::{Check, Claim, Remark, Study},
    result::{ClaimResult, ClaimVerdict, Evidence, StudyResult},
};
use board::Board;
use thalweg_core::profile::Ratio;

/// What one check came to.
struct Judged {
    evidence: Evidence,
    why: String,
}

/// The verdict on every claim of a study. `result` has everything but the claims.
pub fn judge(study: &Study, result: &StudyResult) -> Vec<ClaimResult> {
    study.claims.iter().map(|claim| judge_one(claim, &Board { study, result })).collect()
}

fn judge_one(claim: &Claim, board: &Board<'_>) -> ClaimResult {
    let all = |checks: &[Check], from: usize| -> Vec<Vec<Judged>> {
        let numbered = checks.iter().enumerate();
        numbered.map(|(n, check)| decide::check(board, &claim.id, from + n, check)).collect()
    };
    let judged = all(&claim.checks, 0);
    let flips = all(&claim.flips, claim.checks.len()).into_iter().flatten();
    let remarks: String = claim
        .remarks
        .iter()
        .filter_map(|remark| remarked(remark, judged.get(remark.check.checked_sub(1)?)?, board))
        .collect();
    let mut judged: Vec<Judged> = judged.into_iter().flatten().collect();
    let (verdict, reason) = match &claim.not_runnable {
        Some(reason) => (ClaimVerdict::NotRunnable, reason.clone()),
        None => together(&judged),
    };
    // Those that decided come first, so that the figure shown is theirs.
    judged.sort_by_key(|one| one.evidence.verdict != verdict);
    let first = judged.first().map(|one| &one.evidence);
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
        reason: reason + &remarks,
        evidence: judged.into_iter().map(|one| one.evidence).collect(),
        flips: flips.map(|one| one.evidence).collect(),
    }
}

/// What is to be said of a check that found what the remark is about, with the figure.
fn remarked(remark: &Remark, found: &[Judged], board: &Board<'_>) -> Option<String> {
    let is_so = |Evidence { measured, lo, hi, .. }: &Evidence| {
        let (Some(ratio), Some(lo), Some(hi)) = (*measured, *lo, *hi) else { return false };
        let ratio = Ratio { ratio, lo, hi };
        side::side(&ratio, remark.within, board.noise()) == ClaimVerdict::Reproduced
    };
    let first = found.first().filter(|_| found.iter().all(|one| is_so(&one.evidence)))?;
    Some(format!(". {} ({})", remark.text, first.evidence.text))
}

/// The verdict of all checks together, and the sentence of the one that decided.
fn together(judged: &[Judged]) -> (ClaimVerdict, String) {
    use ClaimVerdict::{Contradicted, NotRunnable, Reproduced, Undecided};
    let sentence = |one: &Judged| format!("{}; {}", one.evidence.text, one.why);
    for verdict in [Contradicted, NotRunnable, Undecided] {
        let mut these = judged.iter().filter(|one| one.evidence.verdict == verdict);
        if let Some(first) = these.next() {
            let more = these.count();
            let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
            return (verdict, format!("{}{more}", sentence(first)));
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

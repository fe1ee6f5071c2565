//! Compares one arm (a compared variant) with the best of several rivals under each condition.

use super::{
    JudgedCheck,
    measurements::{RatioFigure, StudyMeasurements},
    several::nowhere,
    side::{judged, side},
    words::{self, arms_text, of},
};
use crate::study::result::{ClaimVerdict, Condition};
use thalweg_measure::sample::SampleMetric;

/// A check that compares an arm with its rivals.
pub(super) struct BestContest<'c> {
    pub arm: &'c str,
    pub rivals: &'c [String],
    pub metric: SampleMetric,
    pub within: [f64; 2],
    pub note: Option<&'c String>,
}

/// Returns one result for each condition.
pub(super) fn against(
    board: &StudyMeasurements<'_>,
    contest: &BestContest<'_>,
    cells: &[String],
) -> Vec<JudgedCheck> {
    let BestContest { arm, metric, within, note, .. } = *contest;
    let places = cells.iter().flat_map(|cell| board.conditions(cell, None));
    let judged: Vec<JudgedCheck> = places.map(|place| in_place(board, contest, place)).collect();
    if !judged.is_empty() {
        return judged;
    }
    let text = of(note, &arms_text(&[arm.to_owned(), "the best".to_owned()], metric), "nowhere");
    vec![nowhere(text, Vec::new(), within)]
}

/// Compares the arm with every rival under one condition; the rival with the worst verdict decides. No rival is picked
/// as the best, because among similar rivals chance would decide which one is picked.
fn in_place(
    board: &StudyMeasurements<'_>,
    contest: &BestContest<'_>,
    place: &Condition,
) -> JudgedCheck {
    let BestContest { arm, rivals, metric, within, note } = *contest;
    let (mut found, mut absent) = (Vec::new(), Vec::new());
    for rival in rivals {
        let arms = [arm.to_owned(), rival.clone()];
        match board.ratio(&arms, place, metric) {
            Ok(ratio) => found.push((arms, ratio)),
            Err(why) => absent.push(why),
        }
    }
    let holds = |verdict| match verdict {
        ClaimVerdict::Contradicted => 0,
        ClaimVerdict::Undecided | ClaimVerdict::NotRunnable => 1,
        ClaimVerdict::Reproduced => 2,
    };
    let rank = |figure: &RatioFigure| holds(side(figure, within, board.noise()));
    let worst = found.iter().min_by(|(_, a), (_, b)| {
        rank(a).cmp(&rank(b)).then_with(|| b.ratio.ratio.total_cmp(&a.ratio.ratio))
    });
    let where_ = words::condition(place);
    let Some((arms, ratio)) = worst else {
        return nowhere(of(note, &format!("{arm} to the best"), &where_), absent, within);
    };
    let text = of(note, &arms_text(arms, metric), &where_);
    let mut worst = judged(text, Ok(*ratio), within, board.noise());
    worst.of = found.len();
    if let Some(one) = absent.first() {
        let (without, all) = (absent.len(), rivals.len());
        worst.why = format!("{}; {without} of {all} not compared: {}", worst.why, one.why);
    }
    // A rival that cannot run is ignored. A rival with too few sessions might be the best, so the result stays open.
    let open = absent.iter().any(|why| why.verdict == ClaimVerdict::Undecided);
    if open && worst.evidence.verdict == ClaimVerdict::Reproduced {
        worst.evidence.verdict = ClaimVerdict::Undecided;
    }
    worst
}

//! One ratio under several conditions: under all of them, under at least one, or on both sides of a range.

use super::{
    JudgedCheck,
    measurements::{Absent, RatioFigure, StudyMeasurements},
    side::{judged, side},
    words::{self, arms_text, of},
};
use crate::study::{
    file::ClaimCondition,
    result::{
        ClaimVerdict::{self, Contradicted, NotRunnable, Reproduced, Undecided},
        Condition,
    },
};
use thalweg_measure::load::BackgroundLoad;
use thalweg_measure::sample::SampleMetric;

/// Two arms (compared variants), and where they are compared.
#[derive(Clone, Copy)]
pub(super) struct ComparedArms<'c> {
    pub arms: &'c [String; 2],
    /// Groups of arms that are compared with each other.
    pub cells: &'c [String],
    pub metric: SampleMetric,
}

/// Returns every ratio of two arms in these cells, and the reasons for missing ones.
fn across<'b>(
    board: &StudyMeasurements<'b>,
    compared: ComparedArms<'_>,
) -> (Vec<(&'b Condition, RatioFigure)>, Vec<Absent>) {
    let (mut found, mut absent) = (Vec::new(), Vec::new());
    for place in compared.cells.iter().flat_map(|cell| board.conditions(cell, None)) {
        match board.ratio(compared.arms, place, compared.metric) {
            Ok(ratio) => found.push((place, ratio)),
            Err(why) => absent.push(why),
        }
    }
    (found, absent)
}

/// Returns text that lists the conditions that a verdict over several conditions does not cover.
pub(super) fn left_out(
    board: &StudyMeasurements<'_>,
    cells: &[String],
    load: Option<BackgroundLoad>,
) -> String {
    not_in_this_run(&board.left_out(cells, load))
}

/// Maximum number of names to list.
const ENOUGH: usize = 8;

/// Returns text with the number and names of these conditions.
pub(super) fn not_in_this_run(places: &[ClaimCondition]) -> String {
    let Some(first) = places.first() else { return String::new() };
    let one_cell = places.iter().all(|at| at.cell == first.cell);
    let named = places.iter().take(ENOUGH).map(|at| match &at.size {
        Some(size) if one_cell && at.load == BackgroundLoad::Idle => size.clone(),
        _ => words::named(at),
    });
    let named: Vec<String> = named.collect();
    let more = places.len() - named.len();
    let more = if more > 0 { format!(" and {more} others") } else { String::new() };
    let (all, named) = (places.len(), named.join("; "));
    format!(" (this run did not measure {all} more: {named}{more})")
}

/// Returns the result without any figure, with the reason why none exists.
pub(super) fn nowhere(text: String, absent: Vec<Absent>, within: [f64; 2]) -> JudgedCheck {
    let left_out =
        || Absent { verdict: Undecided, why: "this run did not measure the cells".to_owned() };
    let why = absent.into_iter().next().unwrap_or_else(left_out);
    judged(text, Err(why), within, 0.0)
}

/// Returns text like `the ratio is at least 2 in 3 of 4 places`, with the conditions that the run left out.
fn in_places(
    board: &StudyMeasurements<'_>,
    holds: usize,
    all: usize,
    within: [f64; 2],
    cells: &[String],
) -> String {
    let left_out = left_out(board, cells, None);
    format!("the ratio is {} in {holds} of {all} places{left_out}", words::range(within))
}

/// Returns the judgement under the decisive condition, which `pick` selects, and the reasons why other conditions have
/// no figure. If `pick` selects none, the judgement contains the first reason, and the list is empty.
fn at_one(
    board: &StudyMeasurements<'_>,
    compared: ComparedArms<'_>,
    within: [f64; 2],
    note: Option<&String>,
    nothing: &str,
    pick: impl for<'f, 'b> FnOnce(
        &'f [(&'b Condition, RatioFigure)],
    ) -> Option<&'f (&'b Condition, RatioFigure)>,
) -> (JudgedCheck, Vec<Absent>) {
    let (found, absent) = across(board, compared);
    let arms = arms_text(compared.arms, compared.metric);
    let Some((place, figure)) = pick(&found) else {
        return (nowhere(of(note, &arms, nothing), absent, within), Vec::new());
    };
    let text = of(note, &arms, &words::condition(place));
    let mut decisive = judged(text, Ok(*figure), within, board.noise());
    let holds = |(_, figure): &&(&Condition, RatioFigure)| {
        side(figure, within, board.noise()) == Reproduced
    };
    let holds = found.iter().filter(holds).count();
    decisive.why = in_places(board, holds, found.len(), within, compared.cells);
    decisive.of = found.len();
    (decisive, absent)
}

/// Returns the rank of a verdict, from good to bad.
fn rank(verdict: ClaimVerdict) -> u8 {
    match verdict {
        Reproduced => 0,
        Undecided | NotRunnable => 1,
        Contradicted => 2,
    }
}

/// Judges a check that must hold under all conditions: the worst ratio decides. If it holds there, but another
/// condition has no figure, the verdict is undecided or not runnable. The correction for picking the worst of several
/// conditions is applied when all checks of the claim are combined.
pub(super) fn everywhere(
    board: &StudyMeasurements<'_>,
    compared: ComparedArms<'_>,
    within: [f64; 2],
    note: Option<&String>,
) -> JudgedCheck {
    // Among conditions with equal verdicts, the one with the ratio furthest on the wrong side is the worst.
    let badness = |(_, RatioFigure { ratio, .. }): &(&Condition, RatioFigure), verdict| {
        let out = f64::max(within[0] / ratio.ratio, ratio.ratio / within[1]);
        (rank(verdict), out)
    };
    let badness =
        |one: &(&Condition, RatioFigure)| badness(one, side(&one.1, within, board.noise()));
    let (mut worst, absent) = at_one(board, compared, within, note, "everywhere", |found| {
        found.iter().max_by(|a, b| {
            let (a, b) = (badness(a), badness(b));
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
        })
    });
    // A condition that cannot run here decides, also among several checks of a claim.
    let cannot_run = absent.iter().find(|one| one.verdict == NotRunnable);
    if worst.evidence.verdict == Reproduced
        && let Some(one) = cannot_run.or(absent.first())
    {
        worst.evidence.verdict = one.verdict;
        worst.why = format!("{}; {} could not be evaluated: {}", worst.why, absent.len(), one.why);
    }
    worst
}

/// Judges a check that must hold under at least one condition. The condition under which it holds best decides, with a
/// wider interval, because it is the best of several.
pub(super) fn somewhere(
    board: &StudyMeasurements<'_>,
    compared: ComparedArms<'_>,
    within: [f64; 2],
    note: Option<&String>,
) -> JudgedCheck {
    let (mut best, absent) = at_one(board, compared, within, note, "nowhere", |found| {
        let joint = |one: &(&Condition, RatioFigure)| {
            let joint = one.1.one_of(found.len());
            (rank(side(&joint, within, board.noise())), rank(side(&one.1, within, board.noise())))
        };
        found.iter().min_by_key(|one| joint(one))
    });
    if let Some(figure) = best.figure.filter(|_| best.evidence.verdict == Reproduced && best.of > 1)
    {
        let joint = figure.one_of(best.of);
        best.evidence.verdict = side(&joint, within, board.noise());
        let said = words::as_one_of(best.of, &joint.ratio);
        best.why = format!("{}; {said}", best.why);
    }
    // The claim is contradicted only if it fails under all conditions. No condition was selected among several, so this
    // verdict needs no correction for multiple comparisons.
    best.of = 1;
    // The claim might hold under a condition without a figure.
    if best.evidence.verdict == Contradicted && !absent.is_empty() {
        best.evidence.verdict = Undecided;
        best.why = format!("{}; {} more could not be evaluated", best.why, absent.len());
    }
    best
}

/// Returns two checks: one ratio must lie below the range with certainty, and another above it with certainty.
pub(super) fn opposite(
    board: &StudyMeasurements<'_>,
    compared: ComparedArms<'_>,
    [least, most]: [f64; 2],
    note: Option<&String>,
) -> Vec<JudgedCheck> {
    let (found, absent) = across(board, compared);
    let arms = arms_text(compared.arms, compared.metric);
    if found.is_empty() {
        return vec![nowhere(of(note, &arms, "nowhere"), absent, [least, most])];
    }
    // The ends of the range belong to neither side.
    let (below, above) = ([f64::NEG_INFINITY, least.next_down()], [most.next_up(), f64::INFINITY]);
    [below, above].into_iter().map(|range| somewhere(board, compared, range, note)).collect()
}

//! Evaluates every kind of check: computes the figure with its interval and compares it with the range.

use std::collections::BTreeMap;

use super::{
    JudgedCheck,
    best::{self, BestContest},
    correlation::{RankedArms, rank_correlation},
    measurements::{Absent, RatioFigure, StudyMeasurements, too_few},
    several::{ComparedArms, everywhere, left_out, not_in_this_run, opposite, somewhere},
    side::judged,
    words::{self, arms_text, of},
};
use crate::study::{
    file::{ClaimCheck, ClaimCondition},
    result::{ClaimEvidence, ClaimVerdict, Condition, ProbeResult},
};
use thalweg_measure::load::BackgroundLoad;
use thalweg_measure::{sample::SampleMetric, stats::median};

use ClaimVerdict::{Contradicted, NotRunnable, Reproduced, Undecided};

/// Returns the results of one check of a claim; several if the check has several rows.
pub fn check(
    board: &StudyMeasurements<'_>,
    claim: &str,
    number: usize,
    check: &ClaimCheck,
) -> Vec<JudgedCheck> {
    let compared = |arms, cells, metric| ComparedArms { arms, cells, metric };
    match check {
        ClaimCheck::Ratio { arms, at, metric, within, note } => {
            let text = of(note.as_ref(), &arms_text(arms, *metric), &words::named(at));
            let figure = board.condition(at).and_then(|place| board.ratio(arms, place, *metric));
            vec![judged(text, figure, *within, board.noise())]
        }
        ClaimCheck::MeanRatio { arms, at, metric, within, note } => {
            let places = board.conditions(&at.cell, Some(at.load));
            let cells = std::slice::from_ref(&at.cell);
            let left_out = left_out(board, cells, Some(at.load));
            let where_ = format!("mean over {} sizes of {}{left_out}", places.len(), at.cell);
            let text = of(note.as_ref(), &arms_text(arms, *metric), &where_);
            vec![judged(text, mean_ratio(board, arms, &places, *metric), *within, board.noise())]
        }
        ClaimCheck::LoadRatio { arm, at, loads, metric, within, note } => {
            let [first, second] = loads.map(BackgroundLoad::name);
            let what = format!("{arm}, {first} to {second}, {}", words::metric(*metric));
            let where_ = words::named(&ClaimCondition { load: BackgroundLoad::Idle, ..at.clone() });
            let text = of(note.as_ref(), &what, &where_);
            vec![judged(text, load_ratio(board, arm, at, *loads, *metric), *within, board.noise())]
        }
        ClaimCheck::Rows { arms, at, metric, published, within, note } => {
            rows(board, arms, at, *metric, published, *within, note.as_ref())
        }
        ClaimCheck::Everywhere { arms, cells, metric, within, note } => {
            vec![everywhere(board, compared(arms, cells, *metric), *within, note.as_ref())]
        }
        ClaimCheck::Somewhere { arms, cells, metric, within, note } => {
            vec![somewhere(board, compared(arms, cells, *metric), *within, note.as_ref())]
        }
        ClaimCheck::Opposite { arms, cells, metric, around, note } => {
            opposite(board, compared(arms, cells, *metric), *around, note.as_ref())
        }
        ClaimCheck::AgainstBest { arm, rivals, cells, metric, within, note } => best::against(
            board,
            &BestContest { arm, rivals, metric: *metric, within: *within, note: note.as_ref() },
            cells,
        ),
        ClaimCheck::RankCorrelation { arms, places, second_arms, metric, within, note } => {
            let second = second_arms.as_ref().unwrap_or(arms);
            let ranked = RankedArms { arms: [arms, second], places };
            vec![rank_correlation(board, ranked, *metric, *within, note.as_ref())]
        }
        ClaimCheck::Probe { probe, with, within, note } => {
            let found = board.probe(claim, number, probe, with);
            let text = note
                .as_ref()
                .map_or_else(|| format!("probe {probe}"), |note| format!("{note} (probe {probe})"));
            vec![probed(text, found, *within)]
        }
    }
}

/// Evaluates the rows of a published table separately. The text names the rows that the run left out.
fn rows(
    board: &StudyMeasurements<'_>,
    arms: &[String; 2],
    at: &ClaimCondition,
    metric: SampleMetric,
    published: &BTreeMap<String, f64>,
    within: [f64; 2],
    note: Option<&String>,
) -> Vec<JudgedCheck> {
    let mut left_out = board.left_out(std::slice::from_ref(&at.cell), Some(at.load));
    left_out.retain(|place| place.size.as_ref().is_some_and(|size| published.contains_key(size)));
    let left_out = not_in_this_run(&left_out);
    let row = |(size, published): (&String, &f64)| {
        let at = at.of_size(size);
        let of_published = format!("over the published {}", words::number(*published));
        let where_ = format!("{}, {of_published}", words::named(&at));
        let text = of(note, &arms_text(arms, metric), &where_);
        let figure = board.condition(&at).and_then(|place| board.ratio(arms, place, metric));
        let figure = figure.map(|figure| figure.over(*published));
        let row = judged(text, figure, within, board.noise());
        JudgedCheck { why: format!("{}{left_out}", row.why), ..row }
    };
    published.iter().map(row).collect()
}

fn mean_ratio(
    board: &StudyMeasurements<'_>,
    arms: &[String; 2],
    places: &[&Condition],
    metric: SampleMetric,
) -> Result<RatioFigure, Absent> {
    let mut sessions: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for place in places {
        for (session, ratios) in board.paired(arms, place, metric)? {
            sessions.entry(session).or_default().extend(median(&ratios).map(f64::exp));
        }
    }
    // A session that lacks a size would have the mean over other sizes, which is not comparable.
    sessions.retain(|_, ratios| ratios.len() == places.len());
    let mean = |ratios: &[f64]| ratios.iter().sum::<f64>() / ratios.len() as f64;
    let means: Vec<Vec<f64>> = sessions.values().map(|ratios| vec![mean(ratios).ln()]).collect();
    board.over(&means, board.disturbed(arms, places))
}

fn load_ratio(
    board: &StudyMeasurements<'_>,
    arm: &str,
    at: &ClaimCondition,
    loads: [BackgroundLoad; 2],
    metric: SampleMetric,
) -> Result<RatioFigure, Absent> {
    let under = |load| board.condition(&ClaimCondition { load, ..at.clone() });
    let places = [under(loads[0])?, under(loads[1])?];
    let [first, second] = places.map(|place| board.costs(arm, place, metric));
    let (first, second) = (first?, second?);
    let both = first.iter().filter_map(|(session, cost)| Some(vec![cost - second.get(session)?]));
    let both: Vec<Vec<f64>> = both.collect();
    board.over(&both, board.disturbed(&[arm.to_owned()], &places))
}

/// Judges a probe by its findings, which must agree in every session.
fn probed(text: String, found: Option<&ProbeResult>, within: [f64; 2]) -> JudgedCheck {
    let sessions = found.map_or(&[][..], |found| found.sessions.as_slice());
    let findings: Vec<_> = sessions.iter().filter_map(|s| s.finding.as_ref()).collect();
    let Some(first) = findings.first() else {
        let absent = match sessions.iter().find_map(|session| session.missing.clone()) {
            Some(why) => Absent { verdict: NotRunnable, why },
            None => Absent { verdict: Undecided, why: "this run did not measure it".to_owned() },
        };
        return judged(text, Err(absent), within, 0.0);
    };
    let holds = |value: &f64| within[0] <= *value && *value <= within[1];
    let good = findings.iter().filter(|f| !f.numbers.is_empty() && f.numbers.iter().all(holds));
    let (good, all) = (good.count(), findings.len());
    let (verdict, why) = match good {
        _ if all < 2 => (Undecided, too_few(all).why),
        _ if first.numbers.is_empty() => (Undecided, "the probe returned no number".to_owned()),
        0 => (Contradicted, format!("not {} in any of {all} sessions", words::range(within))),
        _ if good == all => (Reproduced, format!("{} in all {all} sessions", words::range(within))),
        _ => (Undecided, format!("{} in {good} of {all} sessions", words::range(within))),
    };
    let numbers = || findings.iter().flat_map(|f| f.numbers.iter().copied());
    let evidence = ClaimEvidence {
        text: format!("{text}: {}", first.text),
        measured: first.numbers.first().copied(),
        lo: numbers().min_by(f64::total_cmp),
        hi: numbers().max_by(f64::total_cmp),
        within: Some(within),
        verdict,
        sessions_needed: None,
    };
    JudgedCheck::plain(evidence, why)
}

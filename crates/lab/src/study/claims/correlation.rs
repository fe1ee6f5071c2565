//! Computes how well the orders of arms (compared variants) in two benchmarks agree, and how well each benchmark agrees
//! with itself.

use std::collections::BTreeMap;
use thalweg_core::profile::Ratio;

use super::{
    JudgedCheck,
    measurements::{Absent, RatioFigure, StudyMeasurements, too_few},
    side::judged,
    words,
};
use crate::study::{
    file::ClaimCondition,
    result::ClaimVerdict::{NotRunnable, Reproduced, Undecided},
};
use thalweg_measure::{
    sample::SampleMetric,
    stats::{Random, interval_of_sessions},
};

/// The costs of the arms of one benchmark, per session, in the order of the arms.
type Rows = BTreeMap<usize, Vec<f64>>;

/// Two benchmarks: the names of their arms (compared variants) in one order, and the conditions of each.
#[derive(Clone, Copy)]
pub(super) struct RankedArms<'c> {
    pub arms: [&'c [String]; 2],
    pub places: &'c [ClaimCondition; 2],
}

/// Computes Spearman's correlation between the costs of arms under two conditions. Benchmarks with random orders
/// correlate little anyway, so the result is compared with the highest correlation to expect (`ceiling`).
pub(super) fn rank_correlation(
    board: &StudyMeasurements<'_>,
    ranked: RankedArms<'_>,
    metric: SampleMetric,
    within: [f64; 2],
    note: Option<&String>,
) -> JudgedCheck {
    let [first, second] = ranked.places.each_ref().map(words::named);
    let all = ranked.arms[0].len();
    let what = format!("rank correlation of {all} arms");
    let text = words::of(note, &what, &format!("{first} against {second}"));
    let able = able(board, ranked);
    let limited = able.as_ref().map_or_else(|_| String::new(), |able| able.limited(all));
    let sides = able.and_then(|able| {
        let arms = able.arms.each_ref().map(Vec::as_slice);
        sides(board, RankedArms { arms, ..ranked }, metric)
    });
    let ceiling = sides.as_ref().ok().and_then(|(sides, _)| ceiling(sides));
    let figure = sides.and_then(|(sides, disturbed)| figure(board, &sides, disturbed));
    let mut judged = judged(text, figure, within, board.noise());
    judged.why += &limited;
    let Some(ceiling) = ceiling.filter(|_| judged.figure.is_some()) else { return judged };
    let itself = format!("each place with itself between sessions: {}", words::number(ceiling));
    if judged.evidence.verdict == Reproduced && ceiling <= within[1] && within[1] < 1.0 {
        judged.evidence.verdict = Undecided;
        judged.why =
            format!("{}, but this run cannot show a higher correlation ({itself})", judged.why);
    } else {
        judged.why = format!("{} ({itself})", judged.why);
    }
    judged
}

/// The minimum number of arms for which an order is meaningful.
const FEWEST: usize = 3;

/// The arms that run under both conditions.
struct Able {
    arms: [Vec<String>; 2],
    absent: Vec<Absent>,
}

impl Able {
    /// Returns text that names the arms that the answer does not cover.
    fn limited(&self, all: usize) -> String {
        let Some(first) = self.absent.first() else { return String::new() };
        let more = self.absent.len() - 1;
        let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
        let ranked = self.arms[0].len();
        format!("; of {all} arms only the {ranked} that run here are ranked: {}{more}", first.why)
    }
}

/// Returns the arms that ran under both conditions. A pair with an arm that cannot run on this machine is left out. If
/// this run did not measure an arm, the answer is undecided.
fn able(
    board: &StudyMeasurements<'_>,
    RankedArms { arms, places }: RankedArms<'_>,
) -> Result<Able, Absent> {
    let places = [board.condition(&places[0])?, board.condition(&places[1])?];
    let mut able = Able { arms: [Vec::new(), Vec::new()], absent: Vec::new() };
    for names in arms[0].iter().zip(arms[1]) {
        let both = [names.0, names.1];
        let ran = both
            .into_iter()
            .zip(places)
            .try_for_each(|(name, place)| board.arm(name, place).map(drop));
        match ran {
            Ok(()) => able.arms.iter_mut().zip(both).for_each(|(own, name)| own.push(name.clone())),
            Err(absent) if absent.verdict == NotRunnable => able.absent.push(absent),
            Err(absent) => return Err(absent),
        }
    }
    match able.absent.first() {
        Some(first) if able.arms[0].len() < FEWEST => Err(first.clone()),
        _ => Ok(able),
    }
}

/// Returns, for both conditions, the sessions that have all arms, and the fraction of samples that other processes
/// disturbed.
fn sides(
    board: &StudyMeasurements<'_>,
    RankedArms { arms, places }: RankedArms<'_>,
    metric: SampleMetric,
) -> Result<([Rows; 2], f64), Absent> {
    let mut disturbed = 0.0;
    let mut side = |names: &[String], at: &ClaimCondition| {
        let place = board.condition(at)?;
        disturbed = f64::max(disturbed, board.disturbed(names, &[place]));
        let costs = names.iter().map(|name| board.costs(name, place, metric));
        let costs: Vec<BTreeMap<usize, f64>> = costs.collect::<Result<_, _>>()?;
        let sessions = costs.first().into_iter().flat_map(|first| first.keys().copied());
        let row = |session| {
            let row = costs.iter().map(|costs| costs.get(&session).copied());
            Some((session, row.collect::<Option<Vec<f64>>>()?))
        };
        Ok::<Rows, Absent>(sessions.filter_map(row).collect())
    };
    let sides = [side(arms[0], &places[0])?, side(arms[1], &places[1])?];
    Ok((sides, disturbed))
}

fn figure(
    board: &StudyMeasurements<'_>,
    [a, b]: &[Rows; 2],
    disturbed: f64,
) -> Result<RatioFigure, Absent> {
    let both = a.iter().filter_map(|(session, row)| Some(spearman(row, b.get(session)?)));
    let values: Vec<f64> = both.collect();
    let found = interval_of_sessions(&values, &mut Random::new(board.seed()));
    let found = found.ok_or_else(|| too_few(values.len()))?;
    // The interval of a few sessions can exceed the bounds of a correlation.
    let (lo, hi) = (found.lo.max(-1.0), found.hi.min(1.0));
    let ratio = Ratio { ratio: found.middle, lo, hi };
    Ok(RatioFigure { ratio, sessions: values.len(), linear: true, disturbed })
}

/// Returns the highest correlation to expect between two benchmarks: the geometric mean of the correlations of each
/// with itself between two sessions. `None` with fewer than two sessions.
fn ceiling([a, b]: &[Rows; 2]) -> Option<f64> {
    Some((itself(a)?.max(0.0) * itself(b)?.max(0.0)).sqrt())
}

fn itself(rows: &Rows) -> Option<f64> {
    let rows: Vec<&Vec<f64>> = rows.values().collect();
    let pairs = rows
        .iter()
        .enumerate()
        .flat_map(|(n, row)| rows[n + 1..].iter().map(move |other| spearman(row, other)));
    let pairs: Vec<f64> = pairs.collect();
    (!pairs.is_empty()).then(|| pairs.iter().sum::<f64>() / pairs.len() as f64)
}

/// Spearman's rank correlation: Pearson's correlation of the ranks, with equal ranks for ties.
pub(super) fn spearman(a: &[f64], b: &[f64]) -> f64 {
    let (a, b) = (ranks(a), ranks(b));
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len().max(1) as f64;
    let (mean_a, mean_b) = (mean(&a), mean(&b));
    let product = |x: &[f64], mx: f64, y: &[f64], my: f64| -> f64 {
        x.iter().zip(y).map(|(x, y)| (x - mx) * (y - my)).sum()
    };
    let spread = product(&a, mean_a, &a, mean_a) * product(&b, mean_b, &b, mean_b);
    if spread <= 0.0 { 0.0 } else { product(&a, mean_a, &b, mean_b) / spread.sqrt() }
}

fn ranks(values: &[f64]) -> Vec<f64> {
    let below = |value: &f64| values.iter().filter(|other| *other < value).count() as f64;
    let equal = |value: &f64| values.iter().filter(|other| *other <= value).count() as f64;
    values.iter().map(|value| f64::midpoint(below(value), equal(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_agree_disagree_and_tie() {
        assert!((spearman(&[1.0, 2.0, 3.0], &[10.0, 20.0, 90.0]) - 1.0).abs() < 1e-12);
        assert!((spearman(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]) + 1.0).abs() < 1e-12);
        assert!((spearman(&[1.0, 1.0, 1.0], &[3.0, 2.0, 1.0])).abs() < 1e-12);
    }

    #[test]
    fn the_ceiling_is_what_each_of_two_benchmarks_makes_of_itself() {
        let rows = |rows: &[[f64; 3]]| -> Rows {
            rows.iter().map(|row| row.to_vec()).enumerate().collect()
        };
        let sure = rows(&[[1.0, 2.0, 3.0], [1.1, 1.9, 3.2], [0.9, 2.2, 2.8]]);
        // Two of the three sessions agree, and one swaps two arms. Of the three pairs of sessions, two have the
        // correlation 1/2, and one has 1.
        let less = rows(&[[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [2.0, 1.0, 3.0]]);
        let of = |a: &Rows, b: &Rows| ceiling(&[a.clone(), b.clone()]);
        assert!((of(&sure, &sure).unwrap() - 1.0).abs() < 1e-12);
        assert!((of(&sure, &less).unwrap() - (2.0_f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(of(&sure, &rows(&[[1.0, 2.0, 3.0]])), None, "one session");
    }
}

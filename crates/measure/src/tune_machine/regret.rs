//! Regret: the extra time of the planner's choice compared with the best mechanism in hindsight.
//!
//! The best mechanism is picked on one half of the rounds and scored on the other half; then the halves are swapped. A
//! mechanism that only chance made best in one half therefore does not count against the planner. The floor is the
//! regret of the mechanism that is best on one half, scored on the other half. No advance choice can be expected to
//! beat it.

use serde::Serialize;
use std::collections::BTreeMap;
use thalweg_core::{
    Guarantees, Prefer, Profile,
    profile::{Load, SinkState},
};

use super::{
    job::TunedMethod,
    pair::EndPair,
    pair_survey::PairSurvey,
    table::{AskedMethod, metric_of},
};
use crate::{
    outcome::Costs,
    stats::{median, quantile},
};

/// The regret at one size.
#[derive(Clone, Debug, Serialize)]
pub struct RegretPoint {
    /// Bytes per transfer; a size that is not in the profile.
    pub size: u64,
    /// The planner's choice.
    pub chosen: TunedMethod,
    /// The best mechanism on each half of the rounds.
    pub best: [TunedMethod; 2],
    /// The time of the choice divided by that of the best, minus 1. It can be negative if the two halves of the rounds
    /// have different best mechanisms.
    pub regret: f64,
    /// The regret of the best mechanism itself.
    pub floor: f64,
    /// The regret of always using one mechanism, for each of them.
    pub always: BTreeMap<String, f64>,
}

/// The regret on one pair under one load.
#[derive(Clone, Debug, Serialize)]
pub struct Regret {
    pub pair: EndPair,
    /// The background load.
    pub load: Load,
    /// The state of the sink before each transfer.
    pub sink_state: SinkState,
    /// `true` if the sink may share pages with the source.
    pub zero_copy: bool,
    /// All sizes that could be scored.
    pub points: Vec<RegretPoint>,
    /// Sizes that could not be scored: too few rounds, or the planner's choice did not work there.
    pub unscored: Vec<u64>,
    pub planner: RegretSpread,
    pub floor: RegretSpread,
    /// The regret of always using one mechanism at its default.
    pub always: BTreeMap<String, RegretSpread>,
}

/// Summary of regrets, as fractions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RegretSpread {
    pub mean: f64,
    /// The 95th percentile.
    pub p95: f64,
    pub worst: f64,
    /// The number of sizes with a regret. A mechanism that was too slow at some sizes was not sampled there.
    pub sizes: usize,
}

impl RegretSpread {
    /// Returns the summary of these regrets; all 0 without values.
    pub fn of(values: &[f64]) -> Self {
        let count = values.len().max(1) as f64;
        let at = |share| quantile(values, share).unwrap_or(0.0);
        let mean = values.iter().sum::<f64>() / count;
        Self { mean, p95: at(0.95), worst: at(1.0), sizes: values.len() }
    }
}

/// Returns the regrets of a profile on a later survey. The first is for callers that need private copies. A second one,
/// for callers that accept shared pages, exists only if more mechanisms are allowed for them.
pub fn regrets(survey: &PairSurvey, profile: &Profile, prefer: Prefer) -> Vec<Regret> {
    let of = |needs: Guarantees| {
        let (mut points, mut unscored) = (Vec::new(), Vec::new());
        for size in survey.sizes() {
            match point(survey, profile, size, needs, prefer) {
                Some(point) => points.push(point),
                None => unscored.push(size),
            }
        }
        Regret { unscored, ..summed(survey, needs, points) }
    };
    let (copied, shared) = (of(Guarantees::COPIED), of(Guarantees::SHARED));
    let more_ways = shared.always.len() > copied.always.len();
    let mut regrets = vec![copied];
    regrets.extend(Some(shared).filter(|_| more_ways));
    regrets.retain(|regret| !(regret.points.is_empty() && regret.unscored.is_empty()));
    regrets
}

fn summed(survey: &PairSurvey, needs: Guarantees, points: Vec<RegretPoint>) -> Regret {
    let spread = |of: &dyn Fn(&RegretPoint) -> Option<f64>| {
        RegretSpread::of(&points.iter().filter_map(of).collect::<Vec<f64>>())
    };
    let names: std::collections::BTreeSet<&String> =
        points.iter().flat_map(|point| point.always.keys()).collect();
    let always = names
        .into_iter()
        .map(|name| (name.clone(), spread(&|point: &RegretPoint| point.always.get(name).copied())));
    Regret {
        pair: survey.ends.clone(),
        load: survey.load,
        sink_state: survey.sink_state,
        zero_copy: !needs.stable,
        planner: spread(&|point| Some(point.regret)),
        floor: spread(&|point| Some(point.floor)),
        always: always.collect(),
        points,
        unscored: Vec::new(),
    }
}

fn point(
    survey: &PairSurvey,
    profile: &Profile,
    size: u64,
    needs: Guarantees,
    prefer: Prefer,
) -> Option<RegretPoint> {
    let (load, sink_state) = (survey.load, survey.sink_state);
    let asked = AskedMethod { size, needs, prefer, load, sink_state };
    let keys = survey.keys()?;
    let chosen = keys.contest().choice(profile, keys, &asked)?;
    let ways = survey.ways(size);
    let reference = survey.reference(size)?;
    let of = |way: &TunedMethod| halves(&survey.costs(size, way, &reference, metric_of(prefer)));
    let contest = survey.ends.contest();
    let kept = ways.iter().filter(|way| contest.keeps(&survey.ends, way, needs));
    let costs: Vec<(TunedMethod, [f64; 2])> =
        kept.filter_map(|way| Some((way.clone(), of(way)?))).collect();
    hindsight(&costs, &chosen).map(|point| RegretPoint { size, ..point })
}

/// Returns the logarithm of the cost of one mechanism relative to another, on the even and on the odd rounds.
/// `sessions` contains the costs of both in each session.
pub fn halves(sessions: &[(Costs, Costs)]) -> Option<[f64; 2]> {
    let half = |parity: usize| {
        let ratios = sessions.iter().map(|(way, other)| way.half(parity).against(other));
        median(&ratios.filter_map(|ratios| median(&ratios)).collect::<Vec<f64>>())
    };
    Some([half(0)?, half(1)?])
}

/// Computes the regret from costs given as logarithms, one for each half.
pub fn hindsight(costs: &[(TunedMethod, [f64; 2])], chosen: &TunedMethod) -> Option<RegretPoint> {
    let of =
        |way: &TunedMethod| costs.iter().find(|(known, _)| known == way).map(|(_, cost)| *cost);
    let chosen_cost = of(chosen)?;
    let best = |half: usize| {
        costs.iter().min_by(|(_, a), (_, b)| a[half].total_cmp(&b[half])).map(|(way, _)| way)
    };
    let best = [best(0)?.clone(), best(1)?.clone()];
    let picked = [of(&best[0])?, of(&best[1])?];
    // The best mechanism of one half, scored on the other.
    let lost = |cost: [f64; 2]| {
        let on = |half: usize| (cost[1 - half] - picked[half][1 - half]).exp() - 1.0;
        f64::midpoint(on(0), on(1))
    };
    let floor = |half: usize| (picked[half][1 - half] - picked[1 - half][1 - half]).exp() - 1.0;
    let plain = costs.iter().filter(|(way, _)| way.tuning.is_default());
    Some(RegretPoint {
        size: 0,
        chosen: chosen.clone(),
        regret: lost(chosen_cost),
        floor: f64::midpoint(floor(0), floor(1)),
        always: plain.map(|(way, cost)| (way.name.clone(), lost(*cost))).collect(),
        best,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(name: &str, even: f64, odd: f64) -> (TunedMethod, [f64; 2]) {
        (TunedMethod::plain(name), [f64::ln(even), f64::ln(odd)])
    }

    #[test]
    fn the_best_way_has_no_regret_and_the_others_what_they_lost() {
        let costs = [cost("a", 1.0, 1.0), cost("b", 0.5, 0.5), cost("c", 2.0, 2.0)];
        let point = hindsight(&costs, &TunedMethod::plain("b")).unwrap();
        assert!(point.regret.abs() < 1e-9 && point.floor.abs() < 1e-9);
        assert!((point.always["a"] - 1.0).abs() < 1e-9 && (point.always["c"] - 3.0).abs() < 1e-9);
        let point = hindsight(&costs, &TunedMethod::plain("a")).unwrap();
        assert!((point.regret - 1.0).abs() < 1e-9);
        assert!(hindsight(&costs, &TunedMethod::plain("d")).is_none());
    }

    #[test]
    fn luck_that_does_not_repeat_is_the_floor_and_not_the_planners_fault() {
        // Two mechanisms with equal true costs. Each was faster by chance on one half of the rounds.
        let costs = [cost("a", 0.9, 1.1), cost("b", 1.1, 0.9)];
        let point = hindsight(&costs, &TunedMethod::plain("a")).unwrap();
        assert!(point.floor > 0.2, "{point:?}");
        assert!(point.regret < 0.0, "no worse than the other one's luck: {point:?}");
        assert_eq!(point.best, [TunedMethod::plain("a"), TunedMethod::plain("b")]);
    }

    #[test]
    fn three_numbers_of_many() {
        let spread = RegretSpread::of(&[0.0, 0.1, 0.2, 0.3]);
        assert!((spread.mean - 0.15).abs() < 1e-9 && (spread.worst - 0.3).abs() < 1e-9);
        assert!(spread.p95 > 0.28 && spread.sizes == 4);
        assert_eq!(RegretSpread::of(&[]).sizes, 0);
    }
}

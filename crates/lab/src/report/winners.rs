//! Maps of the winners: one for each metric, with cells (groups of arms that are compared with each other) and loads by
//! size. Ties are hatched, and guarantees are named. Winners are computed from the samples with the statistics of a
//! run, so a single session has no winner.

use thalweg_core::profile::Ratio;

use super::{
    cell_results::CellResults,
    chart::Scope,
    palette::hue,
    speed::{arm_key, look_of},
    table::{ReportTable, TableCell},
    words::{self, number},
};
use crate::study::{
    costs::ratio,
    file::ArmOrigin,
    result::{ArmResult, Condition},
};
use thalweg_measure::{outcome::RatioOutcome, sample::SampleMetric, stats::RatioVerdict};

/// Returns the maps for both metrics, one for each group of cells with equal sizes. Empty if nothing was compared.
pub fn maps(scope: &Scope<'_>) -> Vec<ReportTable> {
    let mut alike: Vec<(Vec<&str>, Vec<CellResults<'_>>)> = Vec::new();
    for group in CellResults::all(scope.result) {
        let sizes: Vec<&str> = group.places.iter().map(|place| place.size.as_str()).collect();
        match alike.iter_mut().find(|(known, _)| *known == sizes) {
            Some((_, groups)) => groups.push(group),
            None => alike.push((sizes, vec![group])),
        }
    }
    let metrics = [SampleMetric::Wall, SampleMetric::Cpu];
    metrics
        .into_iter()
        .flat_map(|metric| {
            alike.iter().filter_map(move |(sizes, groups)| map(scope, sizes, groups, metric))
        })
        .collect()
}

fn map(
    scope: &Scope<'_>,
    sizes: &[&str],
    groups: &[CellResults<'_>],
    metric: SampleMetric,
) -> Option<ReportTable> {
    let mut columns = vec!["Cell and load"];
    columns.extend(sizes);
    let mut names: Vec<&str> = groups.iter().map(|group| group.cell).collect();
    names.dedup();
    let caption = format!("Least {}: {}", words::metric_name(metric), names.join(", "));
    let mut table = ReportTable::new(caption, &columns);
    for group in groups {
        let name = format!("{}, {}", group.cell, words::load_name(group.load));
        let cells: Vec<Option<TableCell>> =
            group.places.iter().map(|place| winner(scope, group, place, metric)).collect();
        if cells.iter().any(Option::is_some) {
            let cells = cells
                .into_iter()
                .map(|cell| cell.unwrap_or_else(|| TableCell::styled("-", "void")));
            table.row([TableCell::from(name)].into_iter().chain(cells));
        }
    }
    (!table.rows.is_empty()).then_some(table)
}

/// The arms (compared variants) under one condition, ordered by cost, cheapest first.
pub struct Ranking<'a> {
    pub best: &'a ArmResult,
    /// The other arms, each with the ratio of the best to it.
    pub others: Vec<RankedArm<'a>>,
}

/// An arm that is not the cheapest.
pub struct RankedArm<'a> {
    pub arm: &'a ArmResult,
    /// The cost of the best arm divided by that of this arm; `None` if fewer than two sessions have both.
    pub ratio: Option<Ratio>,
    /// `true` if this arm is more expensive than the best one with certainty.
    pub beaten: bool,
}

impl<'a> Ranking<'a> {
    /// Ranks the arms under one condition. Returns `None` if fewer than two arms can be compared.
    pub fn of(
        scope: &Scope<'_>,
        group: &CellResults<'a>,
        place: &Condition,
        metric: SampleMetric,
    ) -> Option<Self> {
        let arms = group.in_place(place).filter(|arm| arm.origin != ArmOrigin::Baseline);
        let arms: Vec<&ArmResult> = arms.collect();
        let (noise, seed) = (scope.result.noise, scope.result.protocol.seed);
        let ranked = ranked(&arms, metric, seed)?;
        let best = ranked[0];
        let others = ranked[1..].iter().map(|arm| {
            let ratio = ratio(best, arm, metric, seed);
            let beaten = ratio
                .is_some_and(|ratio| RatioOutcome { ratio, noise }.word() == RatioVerdict::Faster);
            RankedArm { arm, ratio, beaten }
        });
        Some(Self { best, others: others.collect() })
    }

    /// Returns the arms that are not distinguishable from the best within the noise of the run.
    pub fn ties(&self) -> impl Iterator<Item = &'a str> + '_ {
        self.others.iter().filter(|rival| !rival.beaten).map(|rival| rival.arm.name.as_str())
    }

    /// Returns the cheapest arm with private copies, for the case that the best arm gives weaker guarantees.
    pub fn keeper(&self) -> Option<&RankedArm<'a>> {
        self.others.iter().find(|rival| !words::promises_less(rival.arm.promises))
    }
}

/// Returns the content of a map cell; `None` if fewer than two arms can be compared.
fn winner(
    scope: &Scope<'_>,
    group: &CellResults<'_>,
    place: &Condition,
    metric: SampleMetric,
) -> Option<TableCell> {
    let ranking = Ranking::of(scope, group, place, metric)?;
    let best = ranking.best;
    let ties: Vec<&str> = ranking.ties().collect();
    let look = look_of(scope, &best.name);
    let mut cell = TableCell::styled(best.name.clone(), format!("win h{}", hue(look)));
    cell.key = Some(arm_key(look));
    if ties.is_empty() {
        let next = &ranking.others[0];
        let ratio = words::perhaps(next.ratio.map(|ratio| ratio.ratio));
        cell.more.push(format!("{ratio} times that of {}", next.arm.name));
    } else {
        cell.class += " tie";
        cell.more.push(format!("tie with {}", ties.join(", ")));
    }
    cell.more.push(words::promises(best.promises));
    if words::promises_less(best.promises) {
        cell.class += " weak";
        cell.more.push(kept(&ranking));
    }
    Some(cell)
}

/// Returns text with the cost of the full guarantees.
pub fn kept(ranking: &Ranking<'_>) -> String {
    let Some(keeper) = ranking.keeper() else {
        return "no arm guarantees a stable and private copy".to_owned();
    };
    let worse = keeper.ratio.map(|ratio| number(1.0 / ratio.ratio));
    let worse = worse.map_or(String::new(), |worse| format!(", {worse} times the cost"));
    format!("stable and private: {}{worse}", keeper.arm.name)
}

/// Orders the arms by cost, cheapest first; at least two.
fn ranked<'a>(
    arms: &[&'a ArmResult],
    metric: SampleMetric,
    seed: u64,
) -> Option<Vec<&'a ArmResult>> {
    let reference = *arms.first()?;
    let mut costs: Vec<(f64, &ArmResult)> = arms
        .iter()
        .filter_map(|arm| {
            let same = arm.name == reference.name;
            let cost = if same { 1.0 } else { ratio(arm, reference, metric, seed)?.ratio };
            Some((cost, *arm))
        })
        .collect();
    costs.sort_by(|a, b| a.0.total_cmp(&b.0));
    (costs.len() > 1).then(|| costs.into_iter().map(|(_, arm)| arm).collect())
}

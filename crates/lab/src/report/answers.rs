//! Summary of a study: the winner of each cell (arms that are compared with each other), its lead, and the conditions
//! that change the winner. One line per cell.

use thalweg_core::profile::Ratio;

use super::{
    cell_results::CellResults,
    chart::Scope,
    table::{ReportTable, TableCell},
    winners::{Ranking, kept},
    words::{self, number},
};
use crate::study::result::Condition;
use thalweg_measure::load::BackgroundLoad;
use thalweg_measure::sample::SampleMetric;

/// Adjacent sizes at which the same arm (a compared variant) is the cheapest, or ties with the cheapest.
struct AnswerBand<'g> {
    name: &'g str,
    /// Arms that tie with `name` at every size of the band: no certain difference in cost.
    ties: Vec<&'g str>,
    first: &'g Condition,
    last: &'g Condition,
    /// The cost of the cheapest arm relative to the next one, at the sizes where the difference is certain.
    leads: Vec<Ratio>,
}

/// Returns the table of a study; `None` if nothing was compared.
pub fn table(scope: &Scope<'_>) -> Option<ReportTable> {
    let caption = format!("{}: {}", scope.result.study, scope.result.title);
    let columns = ["Where", "Fastest", "Its time / that of the second", "What changes the winner"];
    let mut table = ReportTable::new(caption, &columns);
    let groups = CellResults::all(scope.result);
    for group in &groups {
        // One line per cell: the idle load if it was measured, otherwise the first load.
        let same = |other: &&CellResults<'_>| other.cell == group.cell;
        let idle = |other: &&CellResults<'_>| other.load == BackgroundLoad::Idle;
        let shown = groups.iter().filter(same).find(idle).or(groups.iter().find(same));
        if shown.is_none_or(|shown| shown.load != group.load) {
            continue;
        }
        let rankings = ranked(scope, group, SampleMetric::Wall);
        let bands = bands(&rankings);
        if bands.is_empty() {
            continue;
        }
        let mut flips = by_promises(&rankings);
        let other_loads = groups.iter().filter(same).filter(|other| other.load != group.load);
        for other in other_loads {
            let name = words::load_name(other.load);
            flips.extend(against(&bands, &ranked(scope, other, SampleMetric::Wall), name));
        }
        flips.extend(against(&bands, &ranked(scope, group, SampleMetric::Cpu), "in CPU time"));
        if flips.is_empty() {
            flips.push("nothing measured".to_owned());
        }
        table.row([cell_name(group), winners(&bands), leads(&bands), lines(flips)]);
    }
    (!table.rows.is_empty()).then_some(table)
}

type Ranked<'g> = Vec<(&'g Condition, Ranking<'g>)>;

fn ranked<'g>(scope: &Scope<'_>, group: &CellResults<'g>, metric: SampleMetric) -> Ranked<'g> {
    let of = |place: &&'g Condition| Some((*place, Ranking::of(scope, group, place, metric)?));
    group.places.iter().filter_map(of).collect()
}

fn bands<'g>(rankings: &Ranked<'g>) -> Vec<AnswerBand<'g>> {
    let mut bands: Vec<AnswerBand<'g>> = Vec::new();
    for (place, ranking) in rankings {
        let ties: Vec<&str> = ranking.ties().collect();
        let lead = ranking.others[0].ratio.filter(|_| ties.is_empty());
        match bands.last_mut() {
            Some(band) if band.name == ranking.best.name || ties.contains(&band.name) => {
                band.last = place;
                let still = |name: &&str| ties.contains(name) || *name == ranking.best.name;
                band.ties.retain(still);
                band.leads.extend(lead);
            }
            _ => bands.push(AnswerBand {
                name: &ranking.best.name,
                ties,
                first: place,
                last: place,
                leads: lead.into_iter().collect(),
            }),
        }
    }
    bands
}

/// Returns text that describes where the winner by wall time is beaten with certainty under another load or by CPU
/// time.
fn against(bands: &[AnswerBand<'_>], rankings: &Ranked<'_>, condition: &str) -> Option<String> {
    let beaten = rankings.iter().filter_map(|(place, ranking)| {
        let holds =
            |band: &&AnswerBand<'_>| (band.first.bytes..=band.last.bytes).contains(&place.bytes);
        let band = bands.iter().find(holds)?;
        let lost = ranking.others.iter().any(|other| other.beaten && other.arm.name == band.name);
        lost.then_some((ranking.best.name.as_str(), place.size.as_str()))
    });
    let mut by_name: Vec<(&str, Vec<&str>)> = Vec::new();
    for (name, size) in beaten {
        match by_name.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sizes)) => sizes.push(size),
            None => by_name.push((name, vec![size])),
        }
    }
    let everywhere = by_name.first().is_some_and(|(_, sizes)| sizes.len() == rankings.len());
    let names = by_name.iter().map(|(name, sizes)| {
        if everywhere { (*name).to_owned() } else { format!("{name} at {}", sizes.join(", ")) }
    });
    let names: Vec<String> = names.collect();
    (!names.is_empty()).then(|| format!("{condition}: {}", names.join("; ")))
}

/// If the winner's copy is not stable and private, returns text that names the best arm with such a copy.
fn by_promises(rankings: &Ranked<'_>) -> Vec<String> {
    let weak =
        |(_, ranking): &&(&Condition, Ranking<'_>)| words::promises_less(ranking.best.promises);
    let Some((place, ranking)) = rankings.iter().rev().find(weak) else { return Vec::new() };
    let at = if rankings.len() > 1 { format!(" (at {})", place.size) } else { String::new() };
    vec![format!("{}{at}", kept(ranking))]
}

fn cell_name(group: &CellResults<'_>) -> TableCell {
    let sizes = match group.places.as_slice() {
        [first, .., last] => format!("{} to {}", first.size, last.size),
        [only] => only.size.clone(),
        [] => String::new(),
    };
    let load = if group.load == BackgroundLoad::Idle { "" } else { words::load_name(group.load) };
    let parts = [group.cell, &sizes, load].into_iter().filter(|part| !part.is_empty());
    TableCell::from(parts.collect::<Vec<_>>().join(", "))
}

fn winners(bands: &[AnswerBand<'_>]) -> TableCell {
    let several = bands.len() > 1;
    lines(bands.iter().map(|band| {
        let ties = if band.ties.is_empty() {
            String::new()
        } else {
            format!(", tie with {}", band.ties.join(", "))
        };
        if several {
            format!("{}: {}{ties}", sizes(band), band.name)
        } else {
            format!("{}{ties}", band.name)
        }
    }))
}

fn sizes(band: &AnswerBand<'_>) -> String {
    let (first, last) = (&band.first.size, &band.last.size);
    if first == last { first.clone() } else { format!("{first} to {last}") }
}

/// Formats the lead in each band: the ratio with its interval if one size has a lead, otherwise the least and the
/// greatest ratio.
fn leads(bands: &[AnswerBand<'_>]) -> TableCell {
    lines(bands.iter().map(|band| {
        let by_ratio = |a: &&Ratio, b: &&Ratio| a.ratio.total_cmp(&b.ratio);
        match (band.leads.iter().min_by(by_ratio), band.leads.iter().max_by(by_ratio)) {
            (Some(only), _) if band.leads.len() == 1 => words::ratio(only),
            (Some(least), Some(most)) => {
                format!("{} to {}", number(least.ratio), number(most.ratio))
            }
            _ => "no difference shown".to_owned(),
        }
    }))
}

fn lines(all: impl IntoIterator<Item = String>) -> TableCell {
    let mut all = all.into_iter();
    let mut cell = TableCell::from(all.next().unwrap_or_default());
    cell.more = all.collect();
    cell
}

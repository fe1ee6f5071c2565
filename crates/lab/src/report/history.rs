//! Compares several runs of one study: does every claim have the same verdict each time?

use super::{
    claims::Badge,
    load::ReportInput,
    table::{ReportTable, TableCell},
    words::{self, machine},
};
use crate::study::result::ClaimVerdict;

/// Groups all inputs by study, sorted by id, with the newest run first. A run that covers less than half of the most
/// complete run is placed after the complete ones.
pub fn by_study(inputs: &[ReportInput]) -> Vec<Vec<&ReportInput>> {
    let mut all: Vec<&ReportInput> = inputs.iter().collect();
    all.sort_by(|a, b| {
        let newest_first = b.result.protocol.began.cmp(&a.result.protocol.began);
        a.result.study.cmp(&b.result.study).then(newest_first)
    });
    // A run that is saved in two directories counts once.
    let run = |input: &ReportInput| {
        let result = &input.result;
        (result.study.clone(), result.protocol.began.clone(), result.protocol.seed)
    };
    all.dedup_by(|a, b| run(a) == run(b));
    let studies =
        all.chunk_by(|a, b| a.result.study == b.result.study).map(<[&ReportInput]>::to_vec);
    let whole_first = studies.map(|mut runs| {
        let extent = |run: &&ReportInput| run.result.arms.len() + run.result.missing.len();
        let fullest = runs.iter().map(extent).max().unwrap_or(0);
        runs.sort_by_key(|run| 2 * extent(run) < fullest);
        runs
    });
    whole_first.collect()
}

/// Returns the verdicts of all runs side by side; `None` for a single run. Another machine may have another verdict,
/// so stability refers to the machine of the newest run.
pub fn table(runs: &[&ReportInput]) -> Option<ReportTable> {
    if runs.len() < 2 {
        return None;
    }
    let machines: Vec<String> = runs.iter().map(|run| machine(&run.result)).collect();
    let several = machines.iter().any(|other| *other != machines[0]);
    let heads = runs.iter().zip(&machines).map(|(run, machine)| {
        if several { format!("{}, {machine}", head(run)) } else { head(run) }
    });
    let heads: Vec<String> = heads.collect();
    let mut columns = vec!["Claim"];
    columns.extend(heads.iter().map(String::as_str));
    columns.push(if several { "On the newest run's machine" } else { "Over all runs" });
    let mut table = ReportTable::new("Verdicts of this study's runs, the newest first", &columns);
    for claim in &runs[0].result.claims {
        let verdicts: Vec<Option<ClaimVerdict>> = runs
            .iter()
            .map(|run| {
                run.result
                    .claims
                    .iter()
                    .find(|other| other.id == claim.id)
                    .map(|other| other.verdict)
            })
            .collect();
        let cells = verdicts.iter().map(|verdict| match verdict {
            Some(verdict) => badge_cell(*verdict),
            None => TableCell::styled("not asked", "void"),
        });
        let cells: Vec<TableCell> = cells.collect();
        let here = verdicts.iter().zip(&machines).filter(|(_, machine)| **machine == machines[0]);
        let known: Vec<ClaimVerdict> = here.filter_map(|(verdict, _)| *verdict).collect();
        table.row(
            [TableCell::from(claim.id.as_str())]
                .into_iter()
                .chain(cells)
                .chain([stability(&known)]),
        );
    }
    Some(table)
}

fn head(run: &ReportInput) -> String {
    let protocol = &run.result.protocol;
    format!("{}, {}", words::moment(&protocol.began), protocol.preset)
}

fn badge_cell(verdict: ClaimVerdict) -> TableCell {
    let badge = Badge::of(verdict);
    TableCell::styled(format!("{} {}", badge.sign, badge.word), badge.class)
}

fn stability(verdicts: &[ClaimVerdict]) -> TableCell {
    match verdicts.split_first() {
        Some((first, others)) if !others.is_empty() && others.iter().all(|v| v == first) => {
            TableCell::from("stable")
        }
        Some((_, [])) | None => TableCell::from("one run"),
        Some(_) => TableCell::styled("changes: treat it as undecided", "open"),
    }
}

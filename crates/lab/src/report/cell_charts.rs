//! The charts of one cell (arms that are compared with each other) for templates: ratios and
//! speeds.

use serde::Serialize;

use super::{
    cell_results::CellResults,
    chart::{LegendEntry, ReportChart, Scope},
    forest::{self, ForestFrame, ForestLine, ForestRow, MarkLook, band_key, key},
    source::{self, PublishedRatios},
    speed,
    svg::Shape,
    table::{ReportTable, TableCell},
    words,
};
use crate::study::result::RatioResult;
use thalweg_measure::sample::SampleMetric;

/// A cell under one load.
#[derive(Clone, Debug, Serialize)]
pub struct CellView {
    /// Identifier for links.
    pub id: String,
    pub cell: String,
    /// A description of the load.
    pub load: &'static str,
    pub figures: Vec<ReportChart>,
}

pub fn cell_views(scope: &Scope<'_>) -> Vec<CellView> {
    let published = source::published_ratios(scope.study);
    let all = CellResults::all(scope.result);
    let views = all.iter().enumerate().map(|(number, group)| {
        let id = format!("{}-c{number}", scope.id);
        let figures = [ratios(scope, group, &id, &published), speed::figure(scope, group, &id)];
        CellView {
            cell: group.cell.to_owned(),
            load: words::load(group.load),
            figures: figures.into_iter().flatten().collect(),
            id,
        }
    });
    views.collect()
}

fn ratios(
    scope: &Scope<'_>,
    group: &CellResults<'_>,
    id: &str,
    published: &PublishedRatios,
) -> Option<ReportChart> {
    if group.ratios.is_empty() {
        return None;
    }
    let drawings = [SampleMetric::Wall, SampleMetric::Cpu].into_iter().filter_map(|metric| {
        let lines = lines(group, metric, published);
        let what = words::metric_name(metric);
        let frame = ForestFrame {
            id: &format!("{id}-ratio-{}", what.split(' ').next().unwrap_or_default()),
            title: &format!("{}: ratios of {what}", group.cell),
            axis: &format!("{what} of the arm / that of the reference; left is less"),
            noise: scope.result.noise,
        };
        (!lines.is_empty()).then(|| forest::draw(&lines, &frame))
    });
    let mut legend = vec![
        LegendEntry::new(key(Shape::Left, "mark less"), "less than the reference"),
        LegendEntry::new(key(Shape::Right, "mark more"), "more"),
        LegendEntry::new(key(Shape::Disc, "mark same"), "no difference shown"),
        LegendEntry::new(
            band_key("noise", 12.0),
            format!("noise of the run: {}", words::percent(scope.result.noise)),
        ),
    ];
    if group.ratios.iter().any(|r| published.contains_key(&source::key(r))) {
        legend.push(LegendEntry::new(key(Shape::Diamond, "published"), "published"));
    }
    if group.ratios.iter().any(|r| !r.same_promises) {
        legend.push(LegendEntry::new(
            "<span class=\"dagger\" aria-hidden=\"true\">\u{2020}</span>".to_owned(),
            "has a different guarantee than the reference; compare the guarantees in the table",
        ));
    }
    Some(ReportChart {
        id: format!("{id}-ratios"),
        caption: "Cost of each arm, as a ratio to the reference".to_owned(),
        note:
            "Median of paired ratios with its 95 % interval over sessions, on a logarithmic axis."
                .to_owned(),
        drawings: drawings.collect(),
        legend,
        table: ratio_table(group, published),
    })
}

fn lines(
    group: &CellResults<'_>,
    metric: SampleMetric,
    published: &PublishedRatios,
) -> Vec<ForestLine> {
    let mut lines = Vec::new();
    for place in &group.places {
        let ratios = group.ratios_in(place, metric);
        let Some(first) = ratios.first() else { continue };
        lines.push(ForestLine::Head(format!("{}: against {}", place.size, first.b)));
        lines.extend(ratios.into_iter().map(|ratio| ForestLine::Ratio(row(ratio, published))));
    }
    lines
}

fn row(found: &RatioResult, published: &PublishedRatios) -> ForestRow {
    let dagger = if found.same_promises { "" } else { " \u{2020}" };
    ForestRow {
        label: words::short(&found.a, 33) + dagger,
        value: [found.ratio.ratio, found.ratio.lo, found.ratio.hi],
        published: published.get(&source::key(found)).copied(),
        look: MarkLook::of(found.verdict),
    }
}

fn ratio_table(group: &CellResults<'_>, published: &PublishedRatios) -> ReportTable {
    let mut table = ReportTable::new(
        format!("{}, {}: ratios", group.cell, words::load_name(group.load)),
        &[
            "Arm",
            "Against",
            "Size",
            "What",
            "Ratio [95 %]",
            "Published",
            "Verdict",
            "Promises",
            "Guarantee of the reference",
        ],
    );
    for found in &group.ratios {
        let promise = |name: &str| words::promises(group.promises(name));
        let less = words::promises_less(group.promises(&found.a));
        let class = if found.same_promises {
            ""
        } else if less {
            "weak"
        } else {
            "other"
        };
        table.row([
            found.a.as_str().into(),
            found.b.as_str().into(),
            found.place.size.as_str().into(),
            words::metric_name(found.metric).into(),
            TableCell::figure(words::ratio(&found.ratio)),
            TableCell::figure(words::perhaps(published.get(&source::key(found)).copied())),
            words::comparison(found.verdict).into(),
            TableCell::styled(promise(&found.a), class),
            promise(&found.b).into(),
        ]);
    }
    table
}

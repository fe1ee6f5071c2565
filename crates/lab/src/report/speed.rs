//! Plots GB/s and CPU seconds per GB: over the size if there are several sizes, otherwise by arm (a compared variant).

use std::collections::BTreeMap;
use thalweg_core::quantity::count;

use super::{
    cell_results::{CellResults, rates, samples},
    chart::{LegendEntry, ReportChart, Scope},
    forest::{band_key, key},
    palette::{hue, shape},
    scale::LogAxis,
    svg::{Anchor, Svg},
    table::{ReportTable, TableCell},
    words::{self, number, short},
};
use crate::study::{file::ArmOrigin, result::ArmResult};
use thalweg_measure::{sample::CallsKind, stats::Spread};

const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 44.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 22.0;
const FOOT: f64 = 40.0;
const ROW: f64 = 34.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SpeedMetric {
    Rate,
    Processor,
}

/// The values of one arm over the sizes.
struct Series<'g> {
    name: &'g str,
    look: usize,
    points: Vec<SpeedPoint>,
}

#[derive(Clone, Copy)]
struct SpeedPoint {
    bytes: f64,
    median: f64,
    quartiles: [f64; 2],
}

/// A panel with all its data.
struct Panel<'g> {
    what: SpeedMetric,
    series: Vec<Series<'g>>,
    limit: Option<Series<'g>>,
}

/// Returns the figure of a cell (arms that are compared with each other); `None` if no arm has a value.
pub fn figure(scope: &Scope<'_>, group: &CellResults<'_>, id: &str) -> Option<ReportChart> {
    let looks = looks(scope);
    let panels = [SpeedMetric::Rate, SpeedMetric::Processor]
        .map(|what| Panel::of(scope, group, what, &looks));
    let single = group.places.len() < 2;
    if panels.iter().all(|panel| panel.series.is_empty() && panel.limit.is_none()) {
        return None;
    }
    let mut legend = Vec::new();
    if !single {
        legend.extend(panels[0].series.iter().map(|series| LegendEntry {
            key: series.key(),
            text: series.name.to_owned(),
            note: Some(words::promises(group.promises(series.name))),
        }));
    }
    let shown = if single { "bar" } else { "band" };
    legend.push(LegendEntry::new(
        band_key("spread", 8.0),
        format!("{shown}: the middle half of all samples"),
    ));
    if let Some(limit) = &panels[0].limit {
        legend.push(LegendEntry::new(
            limit_key(single),
            format!("limit of the machine: {}, the fastest baseline", limit.name),
        ));
    }
    let drawings = panels
        .iter()
        .map(|panel| if single { panel.dots(group, id) } else { panel.curves(group, id) });
    Some(ReportChart {
        id: format!("{id}-speed"),
        caption: "Speed and CPU time".to_owned(),
        note: "Medians over all samples of all sessions, on logarithmic axes. A GB is 10\u{2079} bytes. In the \
               first drawing, faster is higher (with one size: further right). In the second, cheaper is lower (with \
               one size: further left)."
            .to_owned(),
        drawings: drawings.collect(),
        legend,
        table: table(group),
    })
}

/// Returns a number for every arm of the study, so that an arm has the same appearance in every cell.
fn looks<'s>(scope: &Scope<'s>) -> BTreeMap<&'s str, usize> {
    let mut looks = BTreeMap::new();
    for arm in &scope.result.arms {
        let next = looks.len();
        looks.entry(arm.name.as_str()).or_insert(next);
    }
    looks
}

impl<'g> Panel<'g> {
    fn of(
        scope: &Scope<'_>,
        group: &CellResults<'g>,
        what: SpeedMetric,
        looks: &BTreeMap<&str, usize>,
    ) -> Self {
        let is_limit = |name: &str| {
            group.arms.iter().any(|arm| arm.name == name && arm.origin == ArmOrigin::Baseline)
        };
        let look = |name: &str| looks.get(name).copied().unwrap_or(0);
        let series = group.names.iter().filter(|name| !is_limit(name)).map(|&name| {
            let arms = group.places.iter().filter_map(|place| group.arm(name, place));
            Series {
                name,
                look: look(name),
                points: arms.filter_map(|arm| what.point(arm)).collect(),
            }
        });
        // The fastest baseline at each size. The legend uses its name at the largest size.
        let limits = group.places.iter().filter_map(|place| group.limit(place, scope.study));
        let limits: Vec<&ArmResult> = limits.collect();
        let limit = limits.last().map(|last| Series {
            name: &last.name,
            look: look(&last.name),
            points: limits.iter().filter_map(|arm| what.point(arm)).collect(),
        });
        Self { what, series: series.filter(|s| !s.points.is_empty()).collect(), limit }
    }

    fn values(&self) -> Vec<f64> {
        let all = self.series.iter().chain(&self.limit).flat_map(|series| &series.points);
        all.flat_map(|point| [point.median, point.quartiles[0], point.quartiles[1]]).collect()
    }

    fn curves(&self, group: &CellResults<'_>, id: &str) -> String {
        let mut svg = Svg::new(WIDTH, HEIGHT);
        let bottom = HEIGHT - FOOT;
        let sizes = group.places.iter().map(|place| place.bytes as f64);
        let across = LogAxis::of(sizes, [LEFT, WIDTH - RIGHT]);
        let up = LogAxis::of(self.values(), [bottom, TOP]);
        for (value, label) in up.ticks(6) {
            let y = up.at(value);
            svg.line([LEFT, y], [WIDTH - RIGHT, y], "grid");
            svg.text([LEFT - 5.0, y + 4.0], Anchor::End, &label, "tick");
        }
        size_ticks(&mut svg, group, &across, bottom);
        svg.text([2.0, 12.0], Anchor::Start, self.what.unit(), "head");
        svg.text([WIDTH / 2.0, HEIGHT - 6.0], Anchor::Middle, "bytes of one operation", "axis");
        let place = |point: &SpeedPoint, value: f64| [across.at(point.bytes), up.at(value)];
        for series in &self.series {
            let lower = series.points.iter().map(|point| place(point, point.quartiles[0]));
            let upper = series.points.iter().rev().map(|point| place(point, point.quartiles[1]));
            let band: Vec<[f64; 2]> = lower.chain(upper).collect();
            svg.closed(&band, &format!("spread f{}", hue(series.look)));
        }
        if let Some(limit) = &self.limit {
            let line: Vec<[f64; 2]> = limit.points.iter().map(|p| place(p, p.median)).collect();
            svg.through(&line, "limit");
        }
        for series in &self.series {
            let line: Vec<[f64; 2]> = series.points.iter().map(|p| place(p, p.median)).collect();
            svg.through(&line, &format!("curve s{}", hue(series.look)));
            for at in line {
                svg.mark(shape(series.look), at, &format!("mark f{}", hue(series.look)));
            }
        }
        self.finish(svg, group, id)
    }

    fn dots(&self, group: &CellResults<'_>, id: &str) -> String {
        let height = TOP + FOOT + ROW * self.series.len() as f64;
        let bottom = height - FOOT;
        let mut svg = Svg::new(WIDTH, height);
        let along = LogAxis::of(self.values(), [12.0, WIDTH - 12.0]);
        for (value, label) in along.ticks(7) {
            let x = along.at(value);
            svg.line([x, TOP - 4.0], [x, bottom], "grid");
            svg.text([x, bottom + 14.0], Anchor::Middle, &label, "tick");
        }
        let size = group.places.first().map_or("", |place| place.size.as_str());
        let head = format!("{} at {size}", self.what.unit());
        svg.text([WIDTH / 2.0, height - 8.0], Anchor::Middle, &head, "axis");
        let limit = self.limit.as_ref().and_then(|limit| limit.points.first());
        for (row, series) in self.series.iter().enumerate() {
            let Some(point) = series.points.first() else { continue };
            let y = TOP + ROW * row as f64;
            if let Some(limit) = limit {
                // The line of the limit has one piece per arm, so that it never crosses a number.
                let x = along.at(limit.median);
                svg.line([x, y + 9.0], [x, y + 25.0], "limit solid");
            }
            let [left, right] = point.quartiles.map(|value| along.at(value));
            let figures = interval(point);
            svg.text([2.0, y + 6.0], Anchor::Start, &short(series.name, 36), "label");
            svg.text([WIDTH - 2.0, y + 6.0], Anchor::End, &figures, "value");
            svg.area([left, y + 13.0], [right, y + 21.0], &format!("spread f{}", hue(series.look)));
            let class = format!("mark f{}", hue(series.look));
            svg.mark(shape(series.look), [along.at(point.median), y + 17.0], &class);
        }
        self.finish(svg, group, id)
    }

    fn finish(&self, svg: Svg, group: &CellResults<'_>, id: &str) -> String {
        let best = self.series.iter().filter_map(|series| Some((series, series.points.last()?)));
        let best = best.min_by(|a, b| self.what.rank(a.1).total_cmp(&self.what.rank(b.1)));
        let best = best.map_or(String::new(), |(series, point)| {
            format!(
                " At the largest size {} has the best median: {} {}.",
                series.name,
                number(point.median),
                self.what.unit()
            )
        });
        let title = format!("{}: {}", group.cell, self.what.unit());
        let description = format!(
            "{} arms, {}.{best} All figures are in the table below.",
            self.series.len(),
            count(group.places.len() as u64, "size", "sizes"),
        );
        let name = if self.what == SpeedMetric::Rate { "rate" } else { "processor" };
        svg.finish(&format!("{id}-{name}"), &title, &description)
    }
}

impl SpeedMetric {
    fn unit(self) -> &'static str {
        match self {
            Self::Rate => "GB/s",
            Self::Processor => "CPU seconds per GB",
        }
    }

    fn point(self, arm: &ArmResult) -> Option<SpeedPoint> {
        let (median, column) = match self {
            Self::Rate => (arm.gb_per_s, 0),
            Self::Processor => (arm.cpu_s_per_gb, 1),
        };
        let all: Vec<f64> = samples(arm).filter_map(|s| Some(rates(s)?[column])).collect();
        let spread = Spread::of(&all);
        let quartiles = spread.map_or([median; 2], |spread| [spread.lower, spread.upper]);
        let point = SpeedPoint { bytes: arm.place.bytes as f64, median, quartiles };
        (median.is_finite() && median > 0.0).then_some(point)
    }

    fn rank(self, point: &SpeedPoint) -> f64 {
        match self {
            Self::Rate => -point.median,
            Self::Processor => point.median,
        }
    }
}

impl Series<'_> {
    fn key(&self) -> String {
        let mut svg = Svg::new(28.0, 14.0);
        svg.through(&[[1.0, 7.0], [27.0, 7.0]], &format!("curve s{}", hue(self.look)));
        svg.mark(shape(self.look), [14.0, 7.0], &format!("mark f{}", hue(self.look)));
        svg.decoration()
    }
}

fn limit_key(single: bool) -> String {
    let mut svg = Svg::new(if single { 16.0 } else { 28.0 }, 14.0);
    if single {
        svg.line([8.0, 0.0], [8.0, 14.0], "limit solid");
    } else {
        svg.line([1.0, 7.0], [27.0, 7.0], "limit");
    }
    svg.decoration()
}

/// Draws a tick for each size of the study. A label that would touch the previous one is left out.
fn size_ticks(svg: &mut Svg, group: &CellResults<'_>, across: &LogAxis, bottom: f64) {
    let mut free = 0.0;
    for place in &group.places {
        let x = across.at(place.bytes as f64);
        svg.line([x, bottom], [x, bottom + 4.0], "tickmark");
        let half = place.size.chars().count() as f64 * 3.4;
        let at = x.min(WIDTH - half - 1.0);
        if at - half >= free {
            svg.text([at, bottom + 17.0], Anchor::Middle, &place.size, "tick");
            free = at + half + 4.0;
        }
    }
}

fn interval(point: &SpeedPoint) -> String {
    words::interval(point.median, point.quartiles[0], point.quartiles[1])
}

fn table(group: &CellResults<'_>) -> ReportTable {
    let mut table = ReportTable::new(
        format!("{}, {}: speeds", group.cell, words::load_name(group.load)),
        &[
            "Arm",
            "Size",
            "GB/s [middle half]",
            "CPU s/GB [middle half]",
            "User s/GB",
            "Faults/GB",
            "Calls/GB",
            "Marked",
            "Promises",
            "Result of the alias probe",
            "Origin",
            "Note",
        ],
    );
    for place in &group.places {
        for arm in group.in_place(place) {
            table.row(table_row(arm));
        }
    }
    table
}

/// Formats the number of system calls, and mentions the kernel if the kernel counted them.
fn calls(arm: &ArmResult) -> String {
    match (arm.calls_per_gb, arm.calls_kind, &arm.calls_uncounted) {
        (Some(calls), Some(CallsKind::ReadWrite), _) => {
            format!("{} reads and writes, counted by the kernel", number(calls))
        }
        (Some(calls), ..) => number(calls),
        (None, _, Some(why)) => format!("not counted: {why}"),
        (None, ..) => "not counted".to_owned(),
    }
}

fn table_row(arm: &ArmResult) -> Vec<TableCell> {
    let shown =
        |what: SpeedMetric| what.point(arm).map_or("-".to_owned(), |point| interval(&point));
    let weak = if words::promises_less(arm.promises) { "weak" } else { "" };
    let taken = samples(arm).count();
    vec![
        arm.name.as_str().into(),
        arm.place.size.as_str().into(),
        TableCell::figure(shown(SpeedMetric::Rate)),
        TableCell::figure(shown(SpeedMetric::Processor)),
        TableCell::figure(number(arm.user_s_per_gb)),
        TableCell::figure(number(arm.faults_per_gb)),
        TableCell::figure(calls(arm)),
        TableCell::figure(format!("{} of {taken}", arm.marked)),
        TableCell::styled(words::promises(arm.promises), weak),
        arm.alias.as_deref().unwrap_or("-").into(),
        words::origin(arm.origin).into(),
        arm.note.as_deref().unwrap_or("").into(),
    ]
}

/// Returns the symbol of an arm, for tables.
pub fn arm_key(look: usize) -> String {
    key(shape(look), &format!("mark f{}", hue(look)))
}

/// Returns the number of an arm in a result.
pub fn look_of(scope: &Scope<'_>, name: &str) -> usize {
    looks(scope).get(name).copied().unwrap_or(0)
}

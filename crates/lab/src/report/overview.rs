//! The overview at the top of the page: one row per claim, in two columns, with an interval for each machine.

use serde::Serialize;

use super::{
    chart::Scope,
    claims::{Badge, published},
    history,
    load::ReportInput,
    machines::{ReportMachine, agreement},
    scale::LogAxis,
    svg::{Shape, Svg},
    words,
};
use crate::study::result::{ClaimResult, ClaimVerdict};

/// The overview for templates.
#[derive(Clone, Debug, Serialize)]
pub struct Overview {
    pub machines: Vec<LegendMachine>,
    pub articles: Vec<OverviewStudy>,
    /// Goals of thalweg, separate from the claims of articles.
    pub goals: Vec<OverviewStudy>,
    /// Labels of the two ends of the axis.
    pub axis: [String; 2],
}

#[derive(Clone, Debug, Serialize)]
pub struct LegendMachine {
    pub letter: char,
    pub name: String,
    pub when: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct OverviewStudy {
    pub id: String,
    pub title: String,
    pub rows: Vec<OverviewRow>,
}

#[derive(Clone, Debug, Serialize)]
pub struct OverviewRow {
    /// The anchor of the details on the page.
    pub anchor: String,
    pub id: String,
    pub text: String,
    pub published: Option<String>,
    /// The verdicts as published and, if the claim has such checks, under modern conditions.
    pub columns: [OverviewColumn; 2],
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct OverviewColumn {
    pub lines: Vec<OverviewLine>,
    /// Describes on how many machines the verdict agrees.
    pub agreement: Option<String>,
}

/// The result of one machine.
#[derive(Clone, Debug, Serialize)]
pub struct OverviewLine {
    pub letter: char,
    pub badge: Badge,
    pub measured: Option<String>,
    /// The interval as a drawing.
    pub strip: Option<String>,
}

/// A figure with its interval, the range in which it must lie, and the verdict.
pub struct SeenClaim {
    pub value: Option<[f64; 3]>,
    pub within: Option<[f64; 2]>,
    pub verdict: ClaimVerdict,
}

const WIDTH: f64 = 150.0;
const HEIGHT: f64 = 18.0;
/// A ratio further from 1 is drawn at the end of the axis, because one outlier would make all others
/// indistinguishable.
const FARTHEST: f64 = 64.0;

/// Returns the overview of these results; `None` if they have no claims.
pub fn overview(inputs: &[ReportInput]) -> Option<Overview> {
    let machines = ReportMachine::all(inputs);
    let studies = history::by_study(inputs);
    let claims = inputs.iter().flat_map(|input| &input.result.claims);
    let values = claims.flat_map(columns).flatten().filter_map(|seen| seen.value);
    let near = |value: &f64| (1.0 / FARTHEST..=FARTHEST).contains(value);
    let values: Vec<f64> = values.flatten().filter(near).collect();
    let axis = LogAxis::of(values.iter().copied().chain([0.5, 2.0]), [4.0, WIDTH - 4.0]);
    let (mut articles, mut goals) = (Vec::new(), Vec::new());
    for (number, runs) in studies.iter().enumerate() {
        let shown = runs[0];
        let scope = Scope { id: "", result: &shown.result, study: shown.study.as_ref() };
        let (mut said, mut own) = (Vec::new(), Vec::new());
        for (place, claim) in shown.result.claims.iter().enumerate() {
            let row = OverviewRow {
                anchor: format!("s{number}-k{place}"),
                id: claim.id.clone(),
                text: claim.text.clone(),
                published: claim.published.clone(),
                columns: [0, 1].map(|side| column(&machines, &scope, claim, side, &axis)),
            };
            if claim.is_goal() { own.push(row) } else { said.push(row) }
        }
        for (rows, all) in [(said, &mut articles), (own, &mut goals)] {
            if !rows.is_empty() {
                let (id, title) = (shown.result.study.clone(), shown.result.title.clone());
                all.push(OverviewStudy { id, title, rows });
            }
        }
    }
    if articles.is_empty() && goals.is_empty() {
        return None;
    }
    let known = machines.iter().map(|machine| LegendMachine {
        letter: machine.letter,
        name: machine.name.clone(),
        when: machine.when(),
    });
    let ends = axis.ends().map(words::number);
    Some(Overview { machines: known.collect(), articles, goals, axis: ends })
}

/// Returns the results of a claim as published and under modern conditions.
pub fn columns(claim: &ClaimResult) -> [Option<SeenClaim>; 2] {
    let value = |figure: [Option<f64>; 3]| Some([figure[0]?, figure[1]?, figure[2]?]);
    let published = SeenClaim {
        value: value([claim.measured, claim.lo, claim.hi]),
        within: claim.evidence.first().and_then(|evidence| evidence.within),
        verdict: claim.verdict,
    };
    let wider = claim.wider.as_ref().map(|wider| {
        let first = wider.evidence.first();
        SeenClaim {
            value: first.and_then(|found| value([found.measured, found.lo, found.hi])),
            within: first.and_then(|found| found.within),
            verdict: wider.verdict,
        }
    });
    [Some(published), wider]
}

fn column(
    machines: &[ReportMachine<'_>],
    scope: &Scope<'_>,
    claim: &ClaimResult,
    side: usize,
    axis: &LogAxis,
) -> OverviewColumn {
    let mut badges = Vec::new();
    let lines = machines.iter().filter_map(|machine| {
        let run = machine.run(&scope.result.study)?;
        let found = run.result.claims.iter().find(|found| found.id == claim.id)?;
        let seen = columns(found).into_iter().nth(side)??;
        let badge = Badge::of(seen.verdict);
        badges.push(badge);
        let mark = published(scope, found).filter(|_| side == 0);
        let measured = seen.value.map(|[value, lo, hi]| words::interval(value, lo, hi));
        let is_ratio = seen.value.is_some_and(|value| value[1] > 0.0 && axis.holds(value[0]));
        let strip = is_ratio.then(|| strip(&seen, mark, axis));
        Some(OverviewLine { letter: machine.letter, badge, measured, strip })
    });
    let lines = lines.collect();
    OverviewColumn { lines, agreement: agreement(&badges) }
}

/// Draws the interval on top of the range in which it must lie, on the axis shared by all claims. A diamond is the
/// published figure; shape and colour of the mark show the verdict.
fn strip(seen: &SeenClaim, published: Option<f64>, axis: &LogAxis) -> String {
    let mut svg = Svg::new(WIDTH, HEIGHT);
    let middle = HEIGHT / 2.0;
    if let Some([from, to]) = seen.within {
        svg.area([axis.at(from.max(0.0)), 2.0], [axis.at(to), HEIGHT - 2.0], "noise");
    }
    svg.line([axis.at(1.0), 0.0], [axis.at(1.0), HEIGHT], "one");
    if let Some([value, lo, hi]) = seen.value {
        svg.line([axis.at(lo), middle], [axis.at(hi), middle], "whisker");
        let (shape, class) = match seen.verdict {
            ClaimVerdict::Reproduced => (Shape::Square, "mark good"),
            ClaimVerdict::Contradicted => (Shape::Cross, "mark bad"),
            _ => (Shape::Disc, "mark same"),
        };
        svg.mark(shape, [axis.at(value), middle], class);
    }
    if let Some(published) = published {
        svg.mark(Shape::Diamond, [axis.at(published), middle], "published");
    }
    svg.decoration()
}

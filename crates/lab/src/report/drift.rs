//! Plots samples over time with session boundaries, to show drift of an arm and differences between sessions.

use std::fmt::Write;
use thalweg_core::quantity::count;

use super::{
    figure::{Entry, Figure},
    forest::key,
    group::Group,
    palette::MARKED,
    scale::LogAxis,
    svg::{Anchor, Shape, Svg, n},
    table::{Cell, Table},
    words::{self, number, short},
};
use crate::study::result::{ArmResult, Place, SessionSamples};
use thalweg_measure::stats::{Spread, median};

const WIDTH: f64 = 400.0;
const LEFT: f64 = 34.0;
const STRIP: f64 = 54.0;
const HEAD: f64 = 17.0;
const FOOT: f64 = 26.0;
/// Labels closer than this would touch.
const LETTER: f64 = 10.0;
/// A sample that differs from the median by this factor or more is drawn at the edge. Single outliers of ten times
/// the median would hide everything else.
const FAR: f64 = 3.0;

/// Returns a figure of all samples of a cell, one drawing for each size.
pub fn figure(group: &Group<'_>, id: &str) -> Option<Figure> {
    let drawings = group.places.iter().enumerate().filter_map(|(number, place)| {
        let arms: Vec<&ArmResult> = group.in_place(place).filter(|arm| has_samples(arm)).collect();
        (!arms.is_empty()).then(|| draw(&arms, place, &format!("{id}-drift-{number}")))
    });
    let drawings: Vec<String> = drawings.collect();
    if drawings.is_empty() {
        return None;
    }
    Some(Figure {
        id: format!("{id}-drift"),
        caption: "Every sample in the order taken".to_owned(),
        note: "Wall time of each sample over the arm's median, logarithmic. Upright lines are borders between \
               sessions: fresh processes, apart in time. Steps at a border are why intervals go over sessions. \
               The short lines are the sessions' medians. Nothing was left out."
            .to_owned(),
        drawings,
        legend: vec![
            Entry::new(key(Shape::Disc, "sample"), "a sample"),
            Entry::new(key(MARKED, "marked"), "a marked sample: something else disturbed it"),
            Entry::new(key(Shape::Up, "far"), format!("more than {FAR} times the median, shown at the edge")),
        ],
        table: table(group),
        folded: true,
    })
}

fn has_samples(arm: &ArmResult) -> bool {
    arm.sessions.iter().any(|session| !session.samples.is_empty())
}

fn walls(session: &SessionSamples) -> Vec<f64> {
    let repeats = f64::from(session.repeats.max(1));
    session.samples.iter().map(|entry| entry.sample.wall_seconds() / repeats).collect()
}

fn draw(arms: &[&ArmResult], place: &Place, id: &str) -> String {
    let height = STRIP * arms.len() as f64 + HEAD + FOOT;
    let mut svg = Svg::new(WIDTH, height);
    svg.text([2.0, 12.0], Anchor::Start, (&place.size, "head"));
    for (number, arm) in arms.iter().enumerate() {
        strip(&mut svg, arm, HEAD + STRIP * number as f64);
    }
    svg.text([WIDTH / 2.0, height - 8.0], Anchor::Middle, ("samples in the order taken", "axis"));
    let description = format!(
        "{}, {}: wall time of every sample over the arm's median, session after session. Medians and \
         quartiles of each session are in the table below.",
        count(arms.len() as u64, "arm", "arms"),
        count(arms[0].sessions.len() as u64, "session", "sessions"),
    );
    svg.finish(id, &format!("{}, {}: samples over time", place.cell, place.size), &description)
}

/// Draws one arm: its name, an axis of ratios, the samples.
fn strip(svg: &mut Svg, arm: &ArmResult, top: f64) {
    let all: Vec<f64> = arm.sessions.iter().flat_map(walls).collect();
    let middle = median(&all).unwrap_or(1.0);
    let near = all.iter().map(|wall| (wall / middle).clamp(1.0 / FAR, FAR));
    let (low, high) = (top + STRIP - 5.0, top + 17.0);
    let axis = LogAxis::of(near.chain([0.9, 1.1]), [low, high]);
    svg.text([LEFT, top + 11.0], Anchor::Start, (&short(&arm.name, 40), "label"));
    let marked = if arm.marked == 0 { String::new() } else { format!("{} marked", arm.marked) };
    svg.text([WIDTH - 2.0, top + 11.0], Anchor::End, (&marked, "value"));
    let mut free = f64::MAX;
    for (value, label) in axis.ticks(3) {
        let y = axis.at(value);
        if y + LETTER <= free {
            svg.line([LEFT, y], [WIDTH, y], "grid");
            svg.text([LEFT - 4.0, y + 4.0], Anchor::End, (&label, "tick"));
            free = y;
        }
    }
    let step = (WIDTH - LEFT) / all.len().max(1) as f64;
    let mut x = LEFT;
    let mut paths = Paths::default();
    for session in &arm.sessions {
        let from = x;
        let walls = walls(session);
        for (wall, entry) in walls.iter().zip(&session.samples) {
            let seen = Seen { ratio: wall / middle, marked: is_marked(session, entry.round) };
            paths.add(&seen, [x + step / 2.0, axis.at(wall / middle)]);
            x += step;
        }
        svg.line([x, high], [x, low], "border");
        if let Some(own) = median(&walls) {
            let y = axis.at(own / middle);
            svg.line([from + 1.0, y], [x - 1.0, y], "session");
        }
    }
    paths.write(svg);
}

/// A sample relative to the median.
struct Seen {
    ratio: f64,
    marked: bool,
}

/// One path for all samples of equal appearance. Thousands of elements would make the page slow.
#[derive(Default)]
struct Paths {
    dots: String,
    marked: String,
    far: String,
}

impl Paths {
    fn add(&mut self, seen: &Seen, [x, y]: [f64; 2]) {
        if seen.marked {
            self.marked.push_str(&super::svg::outline(MARKED, [x, y], 2.6));
        }
        if seen.ratio > FAR {
            self.far.push_str(&super::svg::outline(Shape::Up, [x, y], 2.6));
        } else if seen.ratio < 1.0 / FAR {
            self.far.push_str(&super::svg::outline(Shape::Down, [x, y], 2.6));
        } else if !seen.marked {
            // A zero-length line with round ends is a dot.
            let _ = write!(self.dots, "M{} {}h0", n(x), n(y));
        }
    }

    fn write(&self, svg: &mut Svg) {
        for (path, class) in [(&self.dots, "dot"), (&self.far, "far"), (&self.marked, "marked")] {
            if !path.is_empty() {
                svg.path(path, class);
            }
        }
    }
}

/// Returns `true` if a mark names this round. Marks are sentences like `round 3: 2 ticks stolen`.
fn is_marked(session: &SessionSamples, round: usize) -> bool {
    session.marks.iter().any(|mark| round_of(mark) == Some(round))
}

/// Returns the round that a mark names, from 0. In marks, rounds count from 1.
fn round_of(mark: &str) -> Option<usize> {
    let number = mark.strip_prefix("round ")?;
    let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
    number[..end].parse::<usize>().ok()?.checked_sub(1)
}

fn table(group: &Group<'_>) -> Table {
    let mut table = Table::new(
        format!("{}, {}: sessions", group.cell, words::load_name(group.load)),
        &[
            "Arm",
            "Size",
            "Session",
            "Samples",
            "Operations in each",
            "Median time of one",
            "Middle half",
            "Marks",
        ],
    );
    for place in &group.places {
        for arm in group.in_place(place) {
            for session in &arm.sessions {
                table.row(row(arm, session));
            }
        }
    }
    table
}

fn row(arm: &ArmResult, session: &SessionSamples) -> Vec<Cell> {
    let spread = Spread::of(&walls(session));
    let middle = spread.map_or("-".to_owned(), |s| words::duration(s.median));
    let half = spread.map_or("-".to_owned(), |s| {
        format!("{} to {}", words::duration(s.lower), words::duration(s.upper))
    });
    let marks = if session.marks.is_empty() { "-".to_owned() } else { session.marks.join("; ") };
    vec![
        arm.name.as_str().into(),
        arm.place.size.as_str().into(),
        Cell::figure(session.session.saturating_add(1).to_string()),
        Cell::figure(session.samples.len().to_string()),
        Cell::figure(number(f64::from(session.repeats))),
        Cell::figure(middle),
        Cell::figure(half),
        marks.into(),
    ]
}

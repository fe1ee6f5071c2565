//! Forest plot: ratios with their intervals on a logarithmic axis, one below the other.

use super::{
    scale::LogAxis,
    svg::{Anchor, Shape, Svg, n},
    words::{interval, short},
};
use thalweg_measure::stats::RatioVerdict;

/// One line of the plot.
#[derive(Clone, Debug)]
pub enum ForestLine {
    /// A heading for the lines below.
    Head(String),
    Ratio(ForestRow),
}

#[derive(Clone, Debug)]
pub struct ForestRow {
    pub label: String,
    pub value: [f64; 3],
    pub published: Option<f64>,
    pub look: MarkLook,
}

/// The appearance of a ratio: each verdict has its own shape.
#[derive(Clone, Copy, Debug)]
pub struct MarkLook {
    pub shape: Shape,
    pub class: &'static str,
}

/// Properties of the whole plot.
#[derive(Clone, Copy, Debug)]
pub struct ForestFrame<'f> {
    /// Identifier, unique on the page.
    pub id: &'f str,
    pub title: &'f str,
    /// The label of the axis.
    pub axis: &'f str,
    /// The noise, as a fraction; smaller differences are not significant.
    pub noise: f64,
}

const WIDTH: f64 = 400.0;
const SIDE: f64 = 12.0;
const TOP: f64 = 6.0;
const ROW: f64 = 36.0;
const HEAD: f64 = 24.0;
const FOOT: f64 = 40.0;
/// Maximum number of characters of a label, so that it fits next to the figures.
const LABEL: usize = 36;

impl MarkLook {
    /// Returns the mark of a verdict: it points left for faster, right for slower, and is hollow
    /// otherwise.
    pub fn of(verdict: RatioVerdict) -> Self {
        match verdict {
            RatioVerdict::Faster => Self { shape: Shape::Left, class: "mark less" },
            RatioVerdict::Slower => Self { shape: Shape::Right, class: "mark more" },
            RatioVerdict::NoDifferenceShown => Self { shape: Shape::Disc, class: "mark same" },
        }
    }
}

pub fn draw(lines: &[ForestLine], frame: &ForestFrame<'_>) -> String {
    let height: f64 = TOP + FOOT + lines.iter().map(ForestLine::height).sum::<f64>();
    let axis = LogAxis::of(values(lines, frame.noise), [SIDE, WIDTH - SIDE]);
    let mut svg = Svg::new(WIDTH, height);
    let bottom = height - FOOT;
    let band = [1.0 / (1.0 + frame.noise), 1.0 + frame.noise].map(|value| axis.at(value));
    svg.area([band[0], TOP], [band[1], bottom], "noise");
    for (value, label) in axis.ticks(7) {
        let x = axis.at(value);
        svg.line([x, TOP], [x, bottom], "grid");
        svg.text([x, bottom + 14.0], Anchor::Middle, &label, "tick");
    }
    svg.line([axis.at(1.0), TOP], [axis.at(1.0), bottom], "one");
    svg.text([WIDTH / 2.0, height - 8.0], Anchor::Middle, frame.axis, "axis");
    let mut y = TOP;
    for line in lines {
        match line {
            ForestLine::Head(text) => {
                svg.text([2.0, y + 17.0], Anchor::Start, &short(text, 56), "head");
            }
            ForestLine::Ratio(row) => row.draw(&mut svg, &axis, y),
        }
        y += line.height();
    }
    svg.finish(frame.id, frame.title, &description(lines, frame))
}

/// Returns the values that the axis must contain: all ratios and the noise band.
fn values(lines: &[ForestLine], noise: f64) -> Vec<f64> {
    let mut all = vec![1.0 / (1.0 + noise), 1.0 + noise];
    for row in lines.iter().filter_map(ForestLine::row) {
        all.extend(row.value);
        all.extend(row.published);
    }
    // A ratio of a million is an error, and would make all others indistinguishable.
    all.retain(|value| (1e-6..=1e6).contains(value));
    all
}

fn description(lines: &[ForestLine], frame: &ForestFrame<'_>) -> String {
    let rows: Vec<&ForestRow> = lines.iter().filter_map(ForestLine::row).collect();
    let count = |class: &str| rows.iter().filter(|row| row.look.class == class).count();
    format!(
        "{}. {} ratios with 95 % intervals on a logarithmic axis: {} less, {} more, {} with no \
         difference shown. All figures are in the table below.",
        frame.axis,
        rows.len(),
        count("mark less"),
        count("mark more"),
        count("mark same"),
    )
}

impl ForestLine {
    fn height(&self) -> f64 {
        match self {
            Self::Head(_) => HEAD,
            Self::Ratio(_) => ROW,
        }
    }

    fn row(&self) -> Option<&ForestRow> {
        match self {
            Self::Head(_) => None,
            Self::Ratio(row) => Some(row),
        }
    }
}

impl ForestRow {
    fn draw(&self, svg: &mut Svg, axis: &LogAxis, top: f64) {
        let [value, lo, hi] = self.value;
        let middle = top + 25.0;
        svg.text([2.0, top + 13.0], Anchor::Start, &short(&self.label, LABEL), "label");
        let figures = interval(value, lo, hi);
        svg.text([WIDTH - 2.0, top + 13.0], Anchor::End, &figures, "value");
        let (left, right) = (axis.at(lo), axis.at(hi));
        svg.path(&format!("M{} {y}L{} {y}", n(left), n(right), y = n(middle)), "whisker");
        for end in [left, right] {
            svg.line([end, middle - 3.5], [end, middle + 3.5], "whisker");
        }
        svg.mark(self.look.shape, [axis.at(value), middle], self.look.class);
        if let Some(published) = self.published {
            svg.mark(Shape::Diamond, [axis.at(published), middle], "published");
        }
    }
}

/// Returns a single mark for the legend.
pub fn key(shape: Shape, class: &str) -> String {
    let mut svg = Svg::new(16.0, 14.0);
    svg.mark(shape, [8.0, 7.0], class);
    svg.decoration()
}

/// Returns a piece of a band for the legend.
pub fn band_key(class: &str, height: f64) -> String {
    let mut svg = Svg::new(16.0, 14.0);
    svg.area([1.0, 7.0 - height / 2.0], [15.0, 7.0 + height / 2.0], class);
    svg.decoration()
}

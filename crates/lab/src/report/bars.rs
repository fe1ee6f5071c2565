//! A chart of ratios: one bar from 1 to each ratio, on a logarithmic axis, with its interval.

use super::{
    scale::LogAxis,
    svg::{Anchor, Shape, Svg},
    words,
};

/// A bar of the chart.
pub struct Bar {
    pub label: String,
    /// The value and its interval.
    pub value: [f64; 3],
    /// The CSS classes.
    pub class: &'static str,
}

const WIDTH: f64 = 380.0;
const ROW: f64 = 26.0;
const FOOT: f64 = 24.0;
/// Room for the figures beside the bars.
const FIGURES: f64 = 118.0;

/// Draws the bars, with this room for the labels. A value without an interval gets a diamond. `id` is unique on the
/// page, and `measures` describes the ratio.
pub fn draw(id: &str, measures: &str, bars: &[Bar], room: f64) -> String {
    let values = bars.iter().flat_map(|bar| bar.value);
    let axis = LogAxis::of(values.chain([0.8, 1.25]), [room, WIDTH - FIGURES]);
    let bottom = 4.0 + ROW * bars.len() as f64;
    let mut svg = Svg::new(WIDTH, bottom + FOOT);
    for (value, label) in axis.ticks(5) {
        let x = axis.at(value);
        svg.line([x, 2.0], [x, bottom], "grid");
        svg.text([x, bottom + 15.0], Anchor::Middle, &label, "tick");
    }
    for (row, bar) in bars.iter().enumerate() {
        let middle = 4.0 + ROW * (row as f64 + 0.5);
        let [value, lo, hi] = bar.value;
        svg.text([room - 10.0, middle + 4.0], Anchor::End, &bar.label, "label");
        let ends = [axis.at(1.0), axis.at(value)];
        svg.area([ends[0], middle - 7.0], [ends[1], middle + 7.0], bar.class);
        let figure = if lo < hi {
            svg.line([axis.at(lo), middle], [axis.at(hi), middle], "whisker");
            words::interval(value, lo, hi)
        } else {
            svg.mark(Shape::Diamond, [axis.at(value), middle], "published");
            words::number(value)
        };
        svg.text([WIDTH, middle + 4.0], Anchor::End, &figure, "value");
    }
    svg.line([axis.at(1.0), 2.0], [axis.at(1.0), bottom], "one");
    let figures = bars.iter().map(|bar| format!("{}: {}", bar.label, words::number(bar.value[0])));
    let said = format!("{measures} {}", figures.collect::<Vec<_>>().join("; "));
    svg.finish(id, measures, &said)
}

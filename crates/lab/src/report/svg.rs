//! Small SVG drawings. All text is escaped, and all numbers are finite.

use std::fmt::Write;
use thalweg_core::escape::html;

/// A drawing under construction; one unit is about one pixel.
#[derive(Debug)]
pub struct Svg {
    body: String,
    width: f64,
    height: f64,
}

/// The horizontal alignment of a text.
#[derive(Clone, Copy, Debug)]
pub enum Anchor {
    /// The text starts at the position.
    Start,
    /// The text is centred at the position.
    Middle,
    /// The text ends at the position.
    End,
}

/// Shapes that are distinguishable without colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Disc,
    Square,
    /// A triangle that points up.
    Up,
    /// A triangle that points down.
    Down,
    /// A triangle that points left.
    Left,
    /// A triangle that points right.
    Right,
    /// A square standing on its corner.
    Diamond,
    Cross,
}

impl Svg {
    pub fn new(width: f64, height: f64) -> Self {
        Self { body: String::new(), width: finite(width), height: finite(height) }
    }

    pub fn line(&mut self, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2], class: &str) {
        self.path(&format!("M{} {}L{} {}", n(x1), n(y1), n(x2), n(y2)), class);
    }

    /// Draws a rectangle between two corners.
    pub fn area(&mut self, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2], class: &str) {
        let (x, y) = (f64::min(x1, x2), f64::min(y1, y2));
        let (width, height) = (finite((x2 - x1).abs()), finite((y2 - y1).abs()));
        let _ = writeln!(
            self.body,
            r#"<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>"#,
            html(class),
            n(x),
            n(y),
            n(width),
            n(height),
        );
    }

    /// Draws a path. `d` must be built by this crate and never taken from a result, because results
    /// are untrusted.
    pub fn path(&mut self, d: &str, class: &str) {
        let _ = writeln!(self.body, r#"<path class="{}" d="{}"/>"#, html(class), html(d));
    }

    /// Draws a line through points.
    pub fn through(&mut self, points: &[[f64; 2]], class: &str) {
        if points.len() > 1 {
            self.path(&polyline(points), class);
        }
    }

    /// Draws the closed area between points.
    pub fn closed(&mut self, points: &[[f64; 2]], class: &str) {
        if points.len() > 2 {
            self.path(&(polyline(points) + "Z"), class);
        }
    }

    /// Draws a shape at a point.
    pub fn mark(&mut self, shape: Shape, at: [f64; 2], class: &str) {
        self.path(&outline(shape, at, 4.5), class);
    }

    /// Draws a line of text.
    pub fn text(&mut self, [x, y]: [f64; 2], anchor: Anchor, text: &str, class: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let _ = writeln!(
            self.body,
            r#"<text class="{}" x="{}" y="{}" text-anchor="{anchor}">{}</text>"#,
            html(class),
            n(x),
            n(y),
            html(text),
        );
    }

    /// Returns the complete drawing. A screen reader reads the title and the description.
    pub fn finish(self, id: &str, title: &str, description: &str) -> String {
        let (id, title) = (html(id), html(title));
        format!(
            "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{title}\" aria-describedby=\"{id}-d\">\n\
             <title>{title}</title>\n<desc id=\"{id}-d\">{}</desc>\n{}</svg>",
            n(self.width),
            n(self.height),
            html(description),
            self.body,
        )
    }

    /// Returns a drawing that only repeats the text next to it and is hidden from screen readers.
    pub fn decoration(self) -> String {
        let (width, height) = (n(self.width), n(self.height));
        format!(
            "<svg class=\"key\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
             aria-hidden=\"true\">\n{}</svg>",
            self.body,
        )
    }
}

/// Returns the outline of a shape with this radius.
fn outline(shape: Shape, [x, y]: [f64; 2], r: f64) -> String {
    let points: &[[f64; 2]] = match shape {
        Shape::Disc => {
            let (left, r) = (n(x - r), n(r));
            return format!(
                "M{left} {}a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0 -{d} 0Z",
                n(y),
                d = n(2.0 * finite(r.parse().unwrap_or(4.0)))
            );
        }
        Shape::Cross => {
            let [left, right, top, low] = [n(x - r), n(x + r), n(y - r), n(y + r)];
            return format!("M{left} {top}L{right} {low}M{left} {low}L{right} {top}");
        }
        Shape::Square => &[[-0.85, -0.85], [0.85, -0.85], [0.85, 0.85], [-0.85, 0.85]],
        Shape::Up => &[[0.0, -1.1], [1.05, 0.8], [-1.05, 0.8]],
        Shape::Down => &[[0.0, 1.1], [1.05, -0.8], [-1.05, -0.8]],
        Shape::Left => &[[-1.1, 0.0], [0.8, -1.05], [0.8, 1.05]],
        Shape::Right => &[[1.1, 0.0], [-0.8, -1.05], [-0.8, 1.05]],
        Shape::Diamond => &[[0.0, -1.25], [1.25, 0.0], [0.0, 1.25], [-1.25, 0.0]],
    };
    let placed: Vec<[f64; 2]> = points.iter().map(|[dx, dy]| [x + dx * r, y + dy * r]).collect();
    polyline(&placed) + "Z"
}

fn polyline(points: &[[f64; 2]]) -> String {
    let mut d = String::new();
    for (place, [x, y]) in points.iter().enumerate() {
        let _ = write!(d, "{}{} {}", if place == 0 { 'M' } else { 'L' }, n(*x), n(*y));
    }
    d
}

/// Formats a number for a drawing: one decimal, finite.
pub fn n(value: f64) -> String {
    let text = format!("{:.1}", finite(value));
    match text.strip_suffix(".0") {
        Some("-0") => "0".to_owned(),
        Some(whole) => whole.to_owned(),
        None => text,
    }
}

fn finite(value: f64) -> f64 {
    if value.is_finite() { value.clamp(-1e6, 1e6) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_written_into_a_drawing_becomes_markup() {
        let mut svg = Svg::new(10.0, f64::NAN);
        svg.text([f64::INFINITY, 1.26], Anchor::End, "<script>\"&'", "label");
        svg.mark(Shape::Disc, [1.0, -0.01], "a\"b");
        let text = svg.finish("id", "</title><b>", "<i>");
        assert!(
            !text.contains("<script") && !text.contains("<b>") && !text.contains("<i>"),
            "{text}"
        );
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        assert!(text.contains("x=\"0\" y=\"1.3\""), "{text}");
    }
}

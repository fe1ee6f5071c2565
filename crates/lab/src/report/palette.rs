//! The colours of a report, light and dark. Colour is never the only way in which information is shown.

use serde::Serialize;

use super::svg::Shape;

/// The colours of one theme in CSS notation.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Theme {
    /// The page background.
    pub back: &'static str,
    /// The background of boxes, table heads and drawings.
    pub raised: &'static str,
    pub ink: &'static str,
    /// Secondary text.
    pub faint: &'static str,
    /// Colour of separator lines. They never convey information alone.
    pub line: &'static str,
    /// Links and the focus ring.
    pub link: &'static str,
    /// The verdict "reproduced".
    pub good: &'static str,
    /// The verdict "contradicted".
    pub bad: &'static str,
    /// The verdict "undecided".
    pub open: &'static str,
    /// The noise band.
    pub band: &'static str,
    /// The arms (compared variants), in order of appearance.
    pub series: [&'static str; 8],
}

pub const LIGHT: Theme = Theme {
    back: "#ffffff",
    raised: "#f5f6f8",
    ink: "#16191d",
    faint: "#555c66",
    line: "#cfd4da",
    link: "#0b57a4",
    good: "#14632b",
    bad: "#a8241b",
    open: "#7a4d00",
    band: "#dfe4ea",
    series: [
        "#0b5fa5", "#b0480f", "#0b6b50", "#8c3a78", "#6a5a00", "#4b4fc0", "#a3223f", "#49545f",
    ],
};

pub const DARK: Theme = Theme {
    back: "#14171a",
    raised: "#1c2126",
    ink: "#e8eaed",
    faint: "#a6adb6",
    line: "#3b424a",
    link: "#84bdf2",
    good: "#7fd193",
    bad: "#ff9a8f",
    open: "#f0c060",
    band: "#333b44",
    series: [
        "#6fb7f2", "#f2a066", "#52d0a4", "#e19bd0", "#d9c65a", "#abafff", "#ff93a8", "#b6c0ca",
    ],
};

/// Returns the shape of the n-th arm. The numbers of shapes and colours are coprime, so fifty-six arms differ in at
/// least one of them.
pub fn shape(arm: usize) -> Shape {
    const SHAPES: [Shape; 7] = [
        Shape::Disc,
        Shape::Square,
        Shape::Up,
        Shape::Diamond,
        Shape::Down,
        Shape::Right,
        Shape::Left,
    ];
    SHAPES[arm % SHAPES.len()]
}

/// Returns the index of the arm's colour.
pub fn hue(arm: usize) -> usize {
    arm % LIGHT.series.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Minimum contrast of text in WCAG 2.2.
    const ENOUGH: f64 = 4.5;

    /// Relative luminance as WCAG 2.2 defines it.
    fn luminance(color: &str) -> f64 {
        let channel = |at: usize| {
            let value = f64::from(u8::from_str_radix(&color[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    }

    fn contrast(a: &str, b: &str) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (f64::max(a, b) + 0.05) / (f64::min(a, b) + 0.05)
    }

    #[test]
    fn everything_that_is_read_can_be_read() {
        assert!((contrast("#ffffff", "#000000") - 21.0).abs() < 1e-9);
        for theme in [LIGHT, DARK] {
            let texts = [theme.ink, theme.faint, theme.link, theme.good, theme.bad, theme.open];
            for color in texts.iter().chain(&theme.series) {
                for back in [theme.back, theme.raised] {
                    let found = contrast(color, back);
                    assert!(found >= ENOUGH, "{color} on {back}: {found:.2}");
                }
            }
            // Text also appears on the noise band. For marks in the arms' colours, the lower limit
            // for graphics applies.
            assert!(contrast(theme.ink, theme.band) >= ENOUGH);
            assert!(contrast(theme.faint, theme.band) >= ENOUGH);
            for color in theme.series {
                assert!(contrast(color, theme.band) >= 3.0, "{color} on {}", theme.band);
            }
        }
    }

    #[test]
    fn fifty_six_arms_differ_in_colour_or_shape() {
        let mut seen = Vec::new();
        for arm in 0..56 {
            let look = (hue(arm), shape(arm));
            assert!(!seen.contains(&look), "{arm}");
            seen.push(look);
        }
    }
}

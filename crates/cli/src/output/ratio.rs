//! Compact formatting of ratios, their intervals, and medians.

use std::time::Duration;
use thalweg_core::profile::Ratio;
use thalweg_measure::arms::command::{BetterDirection, MeasuredValue};

pub use thalweg_measure::stats::says_nothing;

use super::quantity;

/// Text that replaces a ratio with an interval too wide to be informative.
pub const NOT_ENOUGH: &str = "not enough data";

/// Number of characters on each side of the middle of a bar. A bar of full length means a factor of two.
const HALF: usize = 7;

/// Formats a median in the metric's unit.
pub fn number(value: f64, what: &MeasuredValue) -> String {
    match what {
        MeasuredValue::Wall | MeasuredValue::Cpu => {
            quantity::duration(Duration::try_from_secs_f64(value).unwrap_or(Duration::MAX))
        }
        MeasuredValue::MaxRss => quantity::bytes(value as u64),
        MeasuredValue::Printed(_) if (1e5..1e9).contains(&value) => format!("{value:.0}"),
        MeasuredValue::Printed(_) if !(1e-3..1e5).contains(&value) => format!("{value:.3e}"),
        MeasuredValue::Printed(_) => short(value),
    }
}

fn short(value: f64) -> String {
    match value {
        value if !(1e-3..1e5).contains(&value) => format!("{value:.0e}"),
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value if value >= 0.1 => format!("{value:.2}"),
        value => format!("{value:.4}"),
    }
}

/// Formats a factor in at most four characters, so that a ratio and the ends of its interval always fit their column.
fn factor(value: f64) -> String {
    match value {
        value if !(0.005..999.5).contains(&value) => format!("{value:.0e}"),
        value if value >= 9.995 => format!("{value:.0}"),
        value => format!("{value:.2}"),
    }
}

/// Formats a ratio with its interval: `0.65 [0.60, 0.70]`.
pub fn interval(ratio: &Ratio) -> String {
    if says_nothing(ratio) {
        return NOT_ENOUGH.to_owned();
    }
    format!("{} [{}, {}]", factor(ratio.ratio), factor(ratio.lo), factor(ratio.hi))
}

/// Returns a bar that extends to the right if the ratio is better than 1. The bar has its full length at a factor of
/// two.
pub fn bar(ratio: &Ratio, better: BetterDirection) -> String {
    let doublings = match better {
        BetterDirection::Lower => -ratio.ratio.log2(),
        BetterDirection::Higher => ratio.ratio.log2(),
    };
    let cells = (doublings.abs() * HALF as f64).round().min(HALF as f64) as usize;
    let filled = "#".repeat(cells);
    if doublings < 0.0 { format!("{filled:>HALF$}|") } else { format!("{:HALF$}|{filled}", "") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(ratio: f64) -> Ratio {
        Ratio { ratio, lo: ratio, hi: ratio }
    }

    #[test]
    fn bars_point_to_what_is_better() {
        assert_eq!(bar(&ratio(1.0), BetterDirection::Lower), "       |");
        assert_eq!(bar(&ratio(2.0), BetterDirection::Lower), "#######|");
        assert_eq!(bar(&ratio(2.0), BetterDirection::Higher), "       |#######");
        assert_eq!(bar(&ratio(1e9), BetterDirection::Higher), "       |#######");
        assert_eq!(bar(&ratio(0.9), BetterDirection::Lower), "       |#");
    }

    #[test]
    fn factors_keep_to_their_column() {
        let shown = [0.0, 0.0032, 0.005, 0.999, 9.994, 9.996, 16.4, 999.4, 999.6, 1e9].map(factor);
        assert_eq!(shown, ["0e0", "3e-3", "0.01", "1.00", "9.99", "10", "16", "999", "1e3", "1e9"]);
    }

    #[test]
    fn printed_numbers_have_about_three_digits() {
        let shown = [0.0, 1.234e-5, 0.01234, 0.5, 12.34, 1234.6, 1.23e6].map(short);
        assert_eq!(shown, ["0e0", "1e-5", "0.0123", "0.50", "12.3", "1235", "1e6"]);
    }
}

//! Statistics of samples: medians, ratios with intervals, noise, and verdicts.
//!
//! Means and standard deviations of raw times are not used: on shared machines single outliers reach eleven times the
//! median. No sample is ever dropped.

mod interval;
mod random;
mod student;
mod verdict;

pub use interval::{Interval, interval_of_sessions, ratio_of_rounds, ratio_of_sessions};
pub use random::Random;
pub use student::{narrowing, widening};
pub(super) use verdict::verdict;
pub use verdict::{MOST_NOISE, RatioVerdict, noise_floor, noise_of, says_nothing};

use serde::Serialize;

/// Returns the median: the mean of the two middle values if their number is even. `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// Returns the quantile for this share, with linear interpolation between neighbours.
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = share.clamp(0.0, 1.0) * sorted.len().checked_sub(1)? as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    Some(below + (above - below) * place.fract())
}

/// The quartiles of a set of values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// The lower quartile.
    pub lower: f64,
    pub median: f64,
    /// The upper quartile.
    pub upper: f64,
}

impl Spread {
    /// Returns the quartiles; `None` without values.
    pub fn of(values: &[f64]) -> Option<Self> {
        let at = |share| quantile(values, share);
        Some(Self { lower: at(0.25)?, median: at(0.5)?, upper: at(0.75)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quartiles_of_five_are_the_second_and_the_fourth() {
        let spread = Spread::of(&[5.0, 1.0, 4.0, 2.0, 3.0]).unwrap();
        assert_eq!(spread, Spread { lower: 2.0, median: 3.0, upper: 4.0 });
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[1.0, 3.0]), Some(2.0));
    }

    proptest! {
        #[test]
        fn the_median_has_as_many_above_as_below(values in prop::collection::vec(-1e9..1e9, 1..60)) {
            let middle = median(&values).unwrap();
            let below = values.iter().filter(|v| **v < middle).count();
            let above = values.iter().filter(|v| **v > middle).count();
            prop_assert!(below <= values.len() / 2 && above <= values.len() / 2);
        }

        #[test]
        fn quantiles_rise_and_stay_inside(
            values in prop::collection::vec(-1e9..1e9, 1..60),
            a in 0.0..1.0,
            b in 0.0..1.0,
        ) {
            let (low, high) = (f64::min(a, b), f64::max(a, b));
            let (low, high) = (quantile(&values, low).unwrap(), quantile(&values, high).unwrap());
            prop_assert!(low <= high + 1e-6);
            prop_assert!(values.iter().any(|v| *v <= low + 1e-6));
            prop_assert!(values.iter().any(|v| *v >= high - 1e-6));
        }
    }
}

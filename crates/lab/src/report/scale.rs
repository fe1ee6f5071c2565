//! A logarithmic axis: maps values to positions and chooses tick values.

use super::words::number;

/// Maps positive values to positions.
#[derive(Clone, Copy, Debug)]
pub struct LogAxis {
    lo: f64,
    hi: f64,
    from: f64,
    to: f64,
}

/// The limits of the values that an axis can show.
const LEAST: f64 = 1e-12;
const MOST: f64 = 1e18;
const FEWEST_TICKS: usize = 3;

impl LogAxis {
    /// Creates an axis that contains all these values, with a margin, for positions between `from` and `to`. Values
    /// that are not positive or not finite are ignored. Without values the axis surrounds 1.
    pub fn of(values: impl IntoIterator<Item = f64>, [from, to]: [f64; 2]) -> Self {
        let fit = values.into_iter().filter(|v| v.is_finite() && *v > 0.0);
        let (lo, hi) = fit.fold((MOST, LEAST), |(lo, hi), v| (f64::min(lo, v), f64::max(hi, v)));
        let (lo, hi) = if lo > hi { (1.0, 1.0) } else { (lo.max(LEAST), hi.min(MOST)) };
        // The margin is 5 % of the axis, but large enough for distinct ticks.
        let margin = ((hi / lo).ln() * 0.05).max(0.06).exp();
        Self { lo: lo / margin, hi: hi * margin, from, to }
    }

    /// Returns the position of a value. Values outside the axis are placed at the nearer end.
    pub fn at(&self, value: f64) -> f64 {
        let value = if value.is_nan() { self.lo } else { value.clamp(self.lo, self.hi) };
        let share = (value / self.lo).ln() / (self.hi / self.lo).ln();
        self.from + share * (self.to - self.from)
    }

    /// Returns the smallest and largest value of the axis.
    pub fn ends(&self) -> [f64; 2] {
        [self.lo, self.hi]
    }

    /// Returns `true` if a value lies within the axis.
    pub fn holds(&self, value: f64) -> bool {
        (self.lo..=self.hi).contains(&value)
    }

    /// Returns at most `most` tick values with their labels.
    pub fn ticks(&self, most: usize) -> Vec<(f64, String)> {
        const STEPS: [&[f64]; 4] = [
            &[1.0],
            &[1.0, 2.0, 5.0],
            &[1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0],
            &[
                1.0, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2.0, 2.2, 2.5, 2.8, 3.0, 3.5,
                4.0, 4.5, 5.0, 5.5, 6.0, 6.5, 7.0, 7.5, 8.0, 8.5, 9.0, 9.5,
            ],
        ];
        let sets = STEPS.iter().map(|steps| self.multiples(steps));
        let mut best = Vec::new();
        for set in sets {
            let enough = set.len() >= FEWEST_TICKS;
            best = set;
            if enough {
                break;
            }
        }
        let every = best.len().div_ceil(most.max(1)).max(1);
        best.into_iter().step_by(every).map(|value| (value, plain(value))).collect()
    }

    fn multiples(&self, steps: &[f64]) -> Vec<f64> {
        let (first, last) = (self.lo.log10().floor() as i32, self.hi.log10().ceil() as i32);
        let all = (first..=last)
            .flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)));
        all.filter(|value| self.holds(*value)).collect()
    }
}

/// Formats a tick label without trailing zeros: `0.5`, `1`, `20`.
fn plain(value: f64) -> String {
    let text = number(value);
    if text.contains('.') && !text.contains('e') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ticks_are_few_round_and_on_the_axis() {
        let labels = |values: &[f64]| -> Vec<String> {
            let ticks = LogAxis::of(values.iter().copied(), [0.0, 100.0]).ticks(8);
            ticks.into_iter().map(|(_, label)| label).collect()
        };
        assert_eq!(labels(&[0.1, 100.0]), ["0.1", "1", "10", "100"]);
        assert_eq!(labels(&[0.4, 3.0]), ["0.5", "1", "2"]);
        assert_eq!(labels(&[]), ["0.95", "1", "1.05"]);
    }

    proptest! {
        #[test]
        fn whatever_the_values_places_are_on_paper(
            values in prop::collection::vec(prop::num::f64::ANY, 0..9),
            asked in prop::num::f64::ANY,
        ) {
            let axis = LogAxis::of(values.iter().copied(), [10.0, 90.0]);
            let place = axis.at(asked);
            prop_assert!((9.99..=90.01).contains(&place), "{place}");
            prop_assert!(axis.ticks(6).len() <= 6);
        }
    }
}

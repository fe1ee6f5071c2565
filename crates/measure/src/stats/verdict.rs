//! Turns a ratio and the noise of its run into a verdict.

use serde::{Deserialize, Serialize};
use std::fmt;
use thalweg_core::profile::{LEAST_NOISE, Ratio};

use super::{Random, ratio_of_rounds};

/// The result of comparing one variant with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RatioVerdict {
    /// Takes less time, with certainty and by more than the noise.
    Faster,
    /// Takes more time, with certainty and by more than the noise.
    Slower,
    /// The difference is not larger than the noise, or its sign is uncertain. Does not mean "equal".
    NoDifferenceShown,
}

impl fmt::Display for RatioVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::NoDifferenceShown => "no difference shown",
        })
    }
}

/// Returns the verdict for a ratio of times, given the noise floor of the run.
pub fn verdict(ratio: &Ratio, noise: f64) -> RatioVerdict {
    let margin = 1.0 + noise.max(LEAST_NOISE);
    if ratio.ratio * margin < 1.0 && ratio.hi < 1.0 {
        RatioVerdict::Faster
    } else if ratio.ratio > margin && ratio.lo > 1.0 {
        RatioVerdict::Slower
    } else {
        RatioVerdict::NoDifferenceShown
    }
}

/// If an interval decides nothing and is wider than this factor, it counts as no information.
const WIDEST: f64 = 10.0;

/// Returns `true` if the interval of a ratio is too wide to be informative. Callers first check whether the interval
/// answers their question anyway.
pub fn says_nothing(ratio: &Ratio) -> bool {
    ratio.lo > 0.0 && ratio.hi / ratio.lo > WIDEST
}

/// Maximum noise. A run with this noise cannot show a difference below a factor of two. More noise is reported as this
/// value.
pub const MOST_NOISE: f64 = 1.0;

/// Returns the noise floor of a run: the maximum distance from 1 of the interval of the A/A pairs, given as log
/// ratios. The result is between [`LEAST_NOISE`] and [`MOST_NOISE`]; it is `MOST_NOISE` with fewer than two pairs.
pub fn noise_floor(same_against_same: &[f64], random: &mut Random) -> f64 {
    noise_of(ratio_of_rounds(same_against_same, random).as_ref())
}

/// Returns the maximum distance from 1 of the interval of an A/A ratio; [`MOST_NOISE`] without a ratio.
pub fn noise_of(aa: Option<&Ratio>) -> f64 {
    let shown = aa.map_or(MOST_NOISE, |r| f64::max(r.hi, 1.0 / r.lo) - 1.0);
    shown.clamp(LEAST_NOISE, MOST_NOISE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_must_be_sure_and_above_the_noise() {
        let word = |ratio, lo, hi, noise| verdict(&Ratio { ratio, lo, hi }, noise);
        assert_eq!(word(0.8, 0.7, 0.9, 0.03), RatioVerdict::Faster);
        assert_eq!(word(0.8, 0.7, 1.01, 0.03), RatioVerdict::NoDifferenceShown);
        assert_eq!(word(0.8, 0.7, 0.9, 0.3), RatioVerdict::NoDifferenceShown);
        assert_eq!(word(1.3, 1.2, 1.4, 0.05), RatioVerdict::Slower);
        assert_eq!(word(1.02, 1.01, 1.03, 0.0), RatioVerdict::NoDifferenceShown);
    }

    #[test]
    fn the_floor_is_three_percent_or_what_the_pairs_show() {
        let mut random = Random::new(1);
        assert!((noise_floor(&[], &mut random) - MOST_NOISE).abs() < 1e-12);
        assert!((noise_floor(&[-9.0, 9.0, 7.0], &mut random) - MOST_NOISE).abs() < 1e-12);
        assert!((noise_floor(&[0.0; 9], &mut random) - LEAST_NOISE).abs() < 1e-12);
        assert!(noise_floor(&[0.2, -0.2, 0.1, -0.3, 0.25], &mut random) > 0.2);
    }
}

//! From a ratio and the noise of its run to a word.

use serde::{Deserialize, Serialize};
use std::fmt;
use thalweg_core::profile::{LEAST_NOISE, Ratio};

use super::{Random, ratio_of_rounds};

/// What may be said of one way against another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Less time, by more than the noise and surely less.
    Faster,
    /// More time, by more than the noise and surely more.
    Slower,
    /// What was seen is no larger than the noise, or its sign is not sure. Not "equal".
    NoDifferenceShown,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::NoDifferenceShown => "no difference shown",
        })
    }
}

/// The word for a ratio of times in a run with this noise floor.
pub fn verdict(ratio: &Ratio, noise: f64) -> Verdict {
    let margin = 1.0 + noise.max(LEAST_NOISE);
    if ratio.ratio * margin < 1.0 && ratio.hi < 1.0 {
        Verdict::Faster
    } else if ratio.ratio > margin && ratio.lo > 1.0 {
        Verdict::Slower
    } else {
        Verdict::NoDifferenceShown
    }
}

/// An interval wider than this factor that leaves a question open is no information on it.
const WIDEST: f64 = 10.0;

/// Whether the interval of a ratio is so wide that it says nothing, unless it is clear of what is asked.
pub fn says_nothing(ratio: &Ratio) -> bool {
    ratio.lo > 0.0 && ratio.hi / ratio.lo > WIDEST
}

/// A run as noisy as this shows nothing below a factor of two; how much noisier is all one.
pub const MOST_NOISE: f64 = 1.0;

/// The noise floor of a run: how far from 1 the interval of the A/A pairs reaches, given as their
/// log ratios; from [`LEAST_NOISE`] to [`MOST_NOISE`], and the most where there are no two pairs.
pub fn noise_floor(same_against_same: &[f64], random: &mut Random) -> f64 {
    noise_of(ratio_of_rounds(same_against_same, random).as_ref())
}

/// How far from 1 the interval of an A/A ratio reaches; the most where there is none.
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
        assert_eq!(word(0.8, 0.7, 0.9, 0.03), Verdict::Faster);
        assert_eq!(word(0.8, 0.7, 1.01, 0.03), Verdict::NoDifferenceShown);
        assert_eq!(word(0.8, 0.7, 0.9, 0.3), Verdict::NoDifferenceShown);
        assert_eq!(word(1.3, 1.2, 1.4, 0.05), Verdict::Slower);
        assert_eq!(word(1.02, 1.01, 1.03, 0.0), Verdict::NoDifferenceShown);
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

//! Estimates how many sessions an undecided claim needs.

use super::measurements::RatioFigure;
use thalweg_measure::stats::narrowing;

/// Maximum estimate, and the maximum number of sessions of a run.
const MOST: usize = 1000;

/// Returns the number of sessions with which the interval would lie inside or outside the range, if the figure and the
/// spread of the sessions stay the same. `None` if it does so now, if the figure is closer to an end of the range than
/// the noise, or if more than 1,000 sessions are needed.
pub(super) fn sessions_to_decide(
    figure: &RatioFigure,
    [least, most]: [f64; 2],
    noise: f64,
) -> Option<usize> {
    let scale = |value: f64| if figure.linear { value } else { value.ln() };
    let [middle, lo, hi] = [figure.ratio.ratio, figure.ratio.lo, figure.ratio.hi].map(scale);
    let noise = if figure.linear { 0.0 } else { noise.ln_1p() };
    // Ends that the figure lies beyond do not matter: the interval only has to stay clear of the nearest one.
    let ends = match figure.ratio.ratio {
        ratio if ratio < least => [least, f64::INFINITY],
        ratio if ratio > most => [f64::NEG_INFINITY, most],
        _ => [least, most],
    };
    let mut narrower: f64 = 1.0;
    for end in ends.into_iter().filter(|end| end.is_finite() && (figure.linear || *end > 0.0)) {
        let away = (scale(end) - middle).abs();
        if away <= noise {
            return None;
        }
        let half = if scale(end) < middle { middle - lo } else { hi - middle };
        narrower = narrower.min(away / half);
    }
    let enough = |sessions: usize| narrowing(figure.sessions, sessions) < narrower;
    if narrower >= 1.0 || !enough(MOST) {
        return None;
    }
    let (mut few, mut many) = (figure.sessions, MOST);
    while many - few > 1 {
        let middle = usize::midpoint(few, many);
        if enough(middle) { many = middle } else { few = middle }
    }
    Some(many)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_core::profile::Ratio;

    fn needed(ratio: [f64; 3], within: [f64; 2], noise: f64) -> Option<usize> {
        let [ratio, lo, hi] = ratio;
        let ratio = Ratio { ratio, lo, hi };
        let figure = RatioFigure { ratio, sessions: 6, linear: false, disturbed: 0.0 };
        sessions_to_decide(&figure, within, noise)
    }

    #[test]
    fn an_interval_that_is_clear_needs_none() {
        assert_eq!(needed([1.0, 0.9, 1.1], [0.5, 2.0], 0.0), None);
        assert_eq!(needed([3.0, 2.5, 3.5], [0.5, 2.0], 0.0), None);
    }

    #[test]
    fn half_the_width_needs_four_times_the_sessions_and_fewer_if_they_are_few() {
        // The end lies half way from the middle to the end of the interval.
        let found = needed([1.0, 1.0 / 1.21, 1.21], [1.0 / 1.1, f64::INFINITY], 0.0);
        let found = found.expect("a number");
        assert!((15..24).contains(&found), "{found}");
    }

    #[test]
    fn only_the_nearest_end_matters_from_outside() {
        let outside = needed([1.07, 0.6, 1.9], [1.5, 1.6], 0.0).expect("a number");
        let open = needed([1.07, 0.6, 1.9], [1.5, f64::INFINITY], 0.0);
        assert_eq!(Some(outside), open);
        assert!((9..20).contains(&outside), "{outside}");
    }

    #[test]
    fn what_is_within_the_noise_is_never_decided() {
        assert_eq!(needed([0.99, 0.9, 1.1], [0.0, 1.0], 0.03), None);
        assert_eq!(needed([0.9999, 0.5, 2.0], [0.0, 1.0], 0.0), None, "more than 1,000");
    }

    #[test]
    fn the_end_at_zero_is_no_end() {
        assert!(needed([0.8, 0.5, 1.3], [0.0, 1.0], 0.03).is_some());
    }
}

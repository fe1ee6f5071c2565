//! Student's t distribution, for intervals that are corrected for multiple comparisons.

use std::f64::consts::{FRAC_2_PI, FRAC_PI_2};

/// The probability that an interval does not contain the true value.
const MISSES: f64 = 0.05;

/// Returns the factor by which to widen a 95 % interval over this number of sessions if the interval is one of `many`.
/// All intervals together then hold with 95 % probability (Bonferroni).
pub fn widening(sessions: usize, many: usize) -> f64 {
    let free = sessions.saturating_sub(1).max(1);
    quantile(free, MISSES / many.max(1) as f64) / quantile(free, MISSES)
}

/// Returns the width of an interval over `to` sessions, divided by the width over `from` sessions of the same spread.
pub fn narrowing(from: usize, to: usize) -> f64 {
    let width = |sessions: usize| {
        let free = sessions.saturating_sub(1).max(1);
        quantile(free, MISSES) / (free as f64 + 1.0).sqrt()
    };
    width(to) / width(from)
}

/// Returns the value that |t| exceeds with this probability, for this number of degrees of freedom.
fn quantile(free: usize, outside: f64) -> f64 {
    // Bisection over the angle whose tangent is t / sqrt(free); the probability grows with the angle.
    let (mut low, mut high) = (0.0, FRAC_PI_2);
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if inside(free, middle) < 1.0 - outside { low = middle } else { high = middle }
    }
    low.tan() * (free as f64).sqrt()
}

/// Returns the probability that |t| is below sqrt(free) tan(angle) (Abramowitz and Stegun, 26.7.3 and 26.7.4).
fn inside(free: usize, angle: f64) -> f64 {
    let (sin, cos) = angle.sin_cos();
    let odd = !free.is_multiple_of(2);
    // 1 + 1/2 cos^2 + 1 3/(2 4) cos^4 ..., or cos + 2/3 cos^3 + 2 4/(3 5) cos^5 ...
    let (mut term, mut sum) = if odd { (cos, 0.0) } else { (1.0, 0.0) };
    let mut step = if odd { 3 } else { 2 };
    while step <= free {
        sum += term;
        term *= (step - 1) as f64 / step as f64 * cos * cos;
        step += 2;
    }
    if odd { FRAC_2_PI * (angle + sin * sum) } else { sin * sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (free, outside, expected) in [
            (1, 0.05, 12.706),
            (2, 0.05, 4.303),
            (5, 0.05, 2.571),
            (5, 0.01, 4.032),
            (5, 0.00625, 4.526),
            (11, 0.05, 2.201),
            (11, 0.002, 4.025),
            (30, 0.01, 2.750),
        ] {
            let found = quantile(free, outside);
            assert!((found - expected).abs() < 2e-3, "{free} {outside}: {found}");
        }
    }

    #[test]
    fn more_sessions_make_an_interval_narrower() {
        assert!((narrowing(6, 6) - 1.0).abs() < 1e-9);
        // 2.201 / sqrt(12) against 2.571 / sqrt(6).
        assert!((narrowing(6, 12) - 0.6054).abs() < 1e-3, "{}", narrowing(6, 12));
        assert!(narrowing(2, 3) < 0.3 && narrowing(0, 0).is_finite());
    }

    #[test]
    fn one_of_one_is_no_wider_and_one_of_more_is_wider() {
        for sessions in [2, 3, 6, 12, 100] {
            assert!((widening(sessions, 1) - 1.0).abs() < 1e-9);
            assert!(widening(sessions, 8) > widening(sessions, 2));
            assert!(widening(sessions, 2) > 1.05);
        }
        assert!(widening(3, 8) > widening(12, 8), "few sessions have longer tails");
        assert!(widening(0, 0).is_finite());
    }
}

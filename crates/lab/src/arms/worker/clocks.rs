//! Compares a worker's clock with ours. A worker may do set-up between its operations that it does not time. If its
//! times repeatedly omit much of the time that we measure, they may omit work too.

use std::time::Duration;

/// Minimum ratio of the worker's own time to the time that we measure. Below this ratio, the worker's times are
/// doubted.
const LEAST_SHARE: f64 = 0.8;
/// Differences below this are the overhead of a request and its answer.
const ASKING: Duration = Duration::from_millis(1);

/// The total time of the worker's runs, by its own clock and by ours.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clocks {
    runs: u32,
    short: u32,
    own: Duration,
    ours: Duration,
}

impl Clocks {
    /// Adds the duration of one run by the worker's clock and by ours.
    pub fn compare(&mut self, own: Duration, ours: Duration) {
        self.runs += 1;
        self.own += own;
        self.ours += ours;
        let short = own < ours.mul_f64(LEAST_SHARE) && ours.saturating_sub(own) > ASKING;
        self.short += u32::from(short);
    }

    /// Returns a doubt about the worker's times if most of them are too short.
    pub fn doubt(&self) -> Option<String> {
        let share = self.own.as_secs_f64() / self.ours.as_secs_f64().max(f64::MIN_POSITIVE);
        (self.short * 2 > self.runs).then(|| {
            format!(
                "the worker measured only {:.0} % of the time that the lab waited for it",
                share * 100.0
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn doubt(runs: &[(u64, u64)]) -> Option<String> {
        let mut clocks = Clocks::default();
        for (own, ours) in runs {
            clocks.compare(ms(*own), ms(*ours));
        }
        clocks.doubt()
    }

    #[test]
    fn a_clock_at_half_speed_is_reported_and_one_that_was_late_once_is_not() {
        assert!(doubt(&[(10, 20), (10, 21), (10, 19)]).unwrap().contains("only 50 %"));
        assert_eq!(doubt(&[(20, 21), (20, 45), (19, 20)]), None);
        assert_eq!(doubt(&[(0, 1), (0, 1)]), None, "asking takes that");
        assert_eq!(doubt(&[]), None);
    }
}

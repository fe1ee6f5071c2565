//! Distributes a session's time over its sizes. Large sizes get more; sizes without time for the minimum number of
//! rounds are skipped.

use std::time::Duration;

/// Verifying and warming up a mechanism costs about as much as this number of samples.
const SET_UP: usize = 3;
/// Maximum duration of a sample. Beyond it, the time is better spent on more rounds.
const LONGEST: Duration = Duration::from_millis(20);
const SHORTEST: Duration = Duration::from_micros(200);
/// Minimum number of rounds. A few are enough, because intervals are computed over sessions.
pub(super) const LEAST_ROUNDS: usize = 2;

/// The share of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TimeShare {
    /// Total time for the size.
    pub allotted: Duration,
    pub sample: Duration,
}

/// Divides the time of a session among its sizes, by the speed observed so far.
pub(super) struct Shares {
    sizes: Vec<u64>,
    rounds: usize,
    /// Seconds per byte of the largest size so far.
    per_byte: f64,
}

impl Shares {
    pub fn new(sizes: &[u64], rounds: usize) -> Self {
        Self { sizes: sizes.to_vec(), rounds, per_byte: 0.0 }
    }

    /// Returns the time for the `n`-th size. `ways`: number of mechanisms to measure at that size; `left`: remaining
    /// time of the session. Returns `None` if that time is too short. The first size always gets a share.
    pub fn next(&self, n: usize, ways: usize, left: Duration) -> Option<TimeShare> {
        let in_a_round = (ways + 1) as f64;
        let times = |rounds: usize| in_a_round * (rounds + SET_UP) as f64;
        let left = left.as_secs_f64();
        let ahead = (self.sizes.len() - n) as f64;
        let sample = left / (ahead * times(self.rounds.max(LEAST_ROUNDS)));
        let sample = sample.clamp(SHORTEST.as_secs_f64(), LONGEST.as_secs_f64());
        let need = |size: &u64| sample.max(self.per_byte * *size as f64);
        let mut last = self.sizes.len();
        let mut sum: f64 = self.sizes[n..].iter().map(need).sum();
        while last > n && sum * times(LEAST_ROUNDS) > left {
            last -= 1;
            sum -= need(&self.sizes[last]);
        }
        if last == n && n > 0 {
            return None;
        }
        let part = if last <= n + 1 { 1.0 } else { need(&self.sizes[n]) / sum };
        Some(TimeShare {
            allotted: Duration::try_from_secs_f64(left * part).unwrap_or_default(),
            sample: Duration::from_secs_f64(sample),
        })
    }

    /// Records the duration of one transfer of the `n`-th size.
    pub fn learn(&mut self, n: usize, took: Duration) {
        self.per_byte = took.as_secs_f64() / self.sizes[n].max(1) as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [u64; 4] = [4 << 10, 1 << 20, 64 << 20, 1 << 30];

    #[test]
    fn nothing_is_known_at_first_and_all_get_the_same() {
        let shares = Shares::new(&SIZES, 10);
        let share = shares.next(0, 9, Duration::from_secs(8)).unwrap();
        assert!((share.allotted.as_secs_f64() - 2.0).abs() < 1e-6, "{share:?}");
        assert!(share.sample >= SHORTEST && share.sample <= LONGEST);
    }

    #[test]
    fn a_size_that_would_eat_the_budget_is_left_out_and_the_others_get_its_time() {
        let mut shares = Shares::new(&SIZES, 10);
        shares.learn(1, Duration::from_micros(500));
        let left = Duration::from_secs(5);
        let third = shares.next(2, 9, left).unwrap();
        assert_eq!(third.allotted, left, "all of it: the last one does not fit");
        assert_eq!(shares.next(3, 9, left), None);
        assert!(shares.next(3, 9, Duration::from_secs(60)).is_some());
    }

    #[test]
    fn the_first_size_is_measured_whatever_the_budget() {
        assert!(Shares::new(&SIZES, 10).next(0, 9, Duration::ZERO).is_some());
        assert!(Shares::new(&[1 << 30], 10).next(0, 9, Duration::ZERO).is_some());
    }
}

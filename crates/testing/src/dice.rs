//! Random numbers from a seed. A failing test prints its seed; `THALWEG_SEED` runs the test with that seed again.

use std::{ops::Range, time::SystemTime};

/// A sequence of random numbers (xorshift64*).
#[derive(Debug)]
pub struct Dice(u64);

impl Dice {
    /// Seeds from `THALWEG_SEED`, or otherwise from the clock.
    pub fn new(test: &str) -> Self {
        Self::fixed(test, SystemTime::UNIX_EPOCH.elapsed().map_or(1, |now| now.as_nanos() as u64))
    }

    /// Seeds like [`new`](Self::new) if this variable makes the test longer, and otherwise with 1. `make test` must not
    /// fail because random input has found a legitimate difference from another program.
    pub fn of_campaign(test: &str, variable: &str) -> Self {
        if std::env::var_os(variable).is_some() { Self::new(test) } else { Self::fixed(test, 1) }
    }

    /// Uses this seed in every run, unless `THALWEG_SEED` is set.
    pub fn fixed(test: &str, seed: u64) -> Self {
        let seed = from_env("THALWEG_SEED", seed);
        // The test harness shows this only if the test fails.
        eprintln!("{test}: THALWEG_SEED={seed}");
        Self::seeded(seed)
    }

    /// Uses this seed regardless of `THALWEG_SEED`.
    pub fn seeded(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a random number in this range.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + (self.next() >> 16) % (range.end - range.start)
    }

    /// Returns a random number below `most`, which is at most 2^31. The C and Java programs at the other end of a ring
    /// compute the same sequence.
    pub fn below(&mut self, most: u64) -> u64 {
        (self.next() >> 33) % most
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// Returns a number from the environment, or `default`. Campaigns use it to run a test for longer.
///
/// # Panics
/// If the variable is set to something other than a number.
pub fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

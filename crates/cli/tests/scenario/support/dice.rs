//! Chance that can be had again: a failing run prints its seed, `THALWEG_SEED` repeats it.

use std::{ops::Range, time::SystemTime};

/// A source of numbers (xorshift64*).
#[derive(Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(test: &str) -> Self {
        Self::fixed(test, SystemTime::UNIX_EPOCH.elapsed().map_or(1, |now| now.as_nanos() as u64))
    }

    /// The same numbers in every run, unless `THALWEG_SEED` asks for others.
    pub fn fixed(test: &str, seed: u64) -> Self {
        let seed = from_env("THALWEG_SEED", seed);
        // Shown by the test harness only if the test fails.
        eprintln!("{test}: THALWEG_SEED={seed}");
        Self::seeded(seed)
    }

    /// A sequence of its own, which `THALWEG_SEED` does not change.
    pub fn seeded(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub fn within(&mut self, range: Range<u64>) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let spread = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16;
        range.start + spread % (range.end - range.start)
    }
}

/// A number from the environment, for campaigns longer than those of every day.
pub fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

//! Random samples of a test's combinations. If a test has many combinations, `make test` runs a random part of them,
//! which differs each time. `THALWEG_SAMPLE=1` (the audit suite `whole`) runs all of them.

use crate::{Dice, from_env};

/// Returns N if one in N combinations runs: `THALWEG_SAMPLE` if set, otherwise the test's own `default`.
pub fn sample_share(default: u64) -> u64 {
    from_env("THALWEG_SAMPLE", default).max(1)
}

/// Selects one in `share` combinations of a test at random.
#[derive(Debug)]
pub struct Sample {
    dice: Dice,
    share: u64,
}

impl Sample {
    /// Selects one in `default` combinations, or one in `THALWEG_SAMPLE` if that is set. Prints the seed with the name
    /// of the test.
    pub fn new(test: &str, default: u64) -> Self {
        Self { dice: Dice::new(test), share: sample_share(default) }
    }

    /// Returns `true` if the next combination runs.
    pub fn takes(&mut self) -> bool {
        self.dice.below(self.share) == 0
    }

    /// Returns the combinations that run, at least one.
    pub fn of<T>(&mut self, all: impl IntoIterator<Item = T>) -> Vec<T> {
        let mut all: Vec<T> = all.into_iter().collect();
        if self.share == 1 || all.is_empty() {
            return all;
        }
        let certain = self.dice.below(all.len() as u64) as usize;
        let certain = all.swap_remove(certain);
        all.retain(|_| self.takes());
        all.push(certain);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::Sample;
    use crate::Dice;

    #[test]
    fn a_sample_has_one_at_least_and_all_if_that_is_asked_for() {
        let sample = |share| Sample { dice: Dice::seeded(7), share };
        assert_eq!(sample(1000).of(0..3).len(), 1);
        assert!((2..60).contains(&sample(4).of(0..80).len()));
        assert_eq!(sample(1).of(0..80), (0..80).collect::<Vec<_>>());
        assert_eq!(sample(4).of(0..0), Vec::<i32>::new());
    }
}

//! Counts verdicts. Claims as published, claims under modern conditions and own goals are never added up together.

use serde::Serialize;

use super::result::{
    ClaimResult,
    ClaimVerdict::{self, Contradicted, NotRunnable, Reproduced, Undecided},
};

/// Numbers of claims by verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerdictTally {
    /// Claims that the whole interval satisfies.
    pub reproduced: usize,
    /// Claims that the whole interval violates.
    pub contradicted: usize,
    /// Claims for which the interval contains both satisfying and violating values, or for which a run has too little
    /// data.
    pub undecided: usize,
    /// Claims that could not be run.
    pub not_runnable: usize,
    pub all: usize,
}

impl VerdictTally {
    pub fn of(verdicts: impl IntoIterator<Item = ClaimVerdict>) -> Self {
        verdicts.into_iter().fold(Self::default(), |mut sum, verdict| {
            *match verdict {
                Reproduced => &mut sum.reproduced,
                Contradicted => &mut sum.contradicted,
                Undecided => &mut sum.undecided,
                NotRunnable => &mut sum.not_runnable,
            } += 1;
            Self { all: sum.all + 1, ..sum }
        })
    }

    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            reproduced: self.reproduced + other.reproduced,
            contradicted: self.contradicted + other.contradicted,
            undecided: self.undecided + other.undecided,
            not_runnable: self.not_runnable + other.not_runnable,
            all: self.all + other.all,
        }
    }

    /// Returns text like `3 reproduced, 2 contradicted`.
    pub fn words(&self) -> String {
        let counts = [
            (self.reproduced, Reproduced),
            (self.contradicted, Contradicted),
            (self.undecided, Undecided),
            (self.not_runnable, NotRunnable),
        ];
        let counts = counts.into_iter().filter(|(count, _)| *count > 0);
        let counts: Vec<String> =
            counts.map(|(count, verdict)| format!("{count} {}", verdict.name())).collect();
        counts.join(", ")
    }
}

/// The counts for a set of claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tallies {
    pub published: VerdictTally,
    /// Verdicts under modern conditions, for the claims that have such checks.
    pub wider: VerdictTally,
    /// Goals of thalweg, which are not from an article.
    pub goals: VerdictTally,
}

impl Tallies {
    pub fn of(claims: &[ClaimResult]) -> Self {
        Self::of_verdicts(
            claims.iter().map(|c| (c.is_goal(), c.verdict, c.wider.as_ref().map(|w| w.verdict))),
        )
    }

    /// Counts verdicts given as (is a goal, verdict as published, verdict under modern conditions).
    pub fn of_verdicts(
        all: impl IntoIterator<Item = (bool, ClaimVerdict, Option<ClaimVerdict>)>,
    ) -> Self {
        all.into_iter().fold(Self::default(), |sum, (goal, verdict, wider)| {
            let (own, wider) = (VerdictTally::of([verdict]), VerdictTally::of(wider));
            sum.and(if goal {
                Self { goals: own, ..Self::default() }
            } else {
                Self { published: own, wider, goals: VerdictTally::default() }
            })
        })
    }

    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            published: self.published.and(other.published),
            wider: self.wider.and(other.wider),
            goals: self.goals.and(other.goals),
        }
    }

    /// Returns text like `as published 3 reproduced; under modern conditions 1 contradicted; own goals 2 reproduced`.
    pub fn words(&self) -> String {
        let parts = [
            ("as published", &self.published),
            ("under modern conditions", &self.wider),
            ("own goals", &self.goals),
        ];
        let parts = parts.into_iter().filter(|(_, tally)| tally.all > 0);
        let parts: Vec<String> =
            parts.map(|(name, tally)| format!("{name} {}", tally.words())).collect();
        if parts.is_empty() { "no claims".to_owned() } else { parts.join("; ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_and_the_two_verdicts_are_never_in_one_sum() {
        let all = [
            (false, Reproduced, Some(Contradicted)),
            (false, NotRunnable, None),
            (true, Reproduced, None),
        ];
        let tallies = Tallies::of_verdicts(all);
        assert_eq!(
            tallies.words(),
            "as published 1 reproduced, 1 not runnable; under modern conditions 1 contradicted; own goals 1 reproduced"
        );
        assert_eq!(tallies.and(tallies).published.all, 4);
        assert_eq!(Tallies::default().words(), "no claims");
    }
}

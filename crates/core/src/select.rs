//! The one rule by which the best of several candidates is chosen: mechanisms between two ends or
//! two processes, and copy kernels.
//!
//! Candidates come in the order of their safety. A candidate that gives less than was promised is
//! unfit and never chosen. Of those that measuring does not tell apart, the earlier goes first.
//! Evidence beyond the measured sizes is that of the nearest one ([`Known`](crate::profile::Known)).

use serde::Serialize;
use std::cmp::Ordering;

use crate::{Prefer, Tuning, Unfit, profile::Evidence};

/// The most time that may be lost by taking the earlier of two candidates that could not be told
/// apart: the regret a choice is allowed. In a noisier run the better median counts.
pub const GIVEN_UP_FOR_SAFETY: f64 = 0.05;

/// One of several that could do a job.
#[derive(Clone, Debug)]
pub struct Candidate<N = &'static str> {
    /// Its name.
    pub name: N,
    /// Whether it can and may do the job.
    pub fits: Result<(), Unfit>,
    /// What is known of it without measuring.
    pub prior: Prior,
    /// What was measured of it for this job.
    pub evidence: Option<Evidence>,
}

/// What is known of a candidate without measuring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prior {
    /// It does less work than a copy: as long as it is unmeasured it goes before all that was.
    pub saves_work: bool,
    /// Smaller goes first among candidates that measuring does not tell apart.
    pub guess: u8,
    /// The reason that is told when it is chosen unmeasured.
    pub why: &'static str,
}

impl Prior {
    /// Nothing but its place in the list.
    pub const NONE: Self =
        Self { saves_work: false, guess: 0, why: "not measured: first in the list" };
}

/// What is thought of one candidate.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict<N = &'static str> {
    /// Its name.
    pub mechanism: N,
    /// How it would be tuned.
    pub tuning: Tuning,
    /// The judgement.
    #[serde(flatten)]
    pub judgement: Judgement,
    /// What was measured, if anything.
    pub evidence: Option<Evidence>,
}

/// The judgement on one candidate.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "verdict", rename_all = "lowercase")]
pub enum Judgement {
    /// It does the job; why it.
    Chosen {
        /// `fastest measured`, `least memory measured`, `not measured: first in the list`, `asked
        /// for`.
        why: String,
    },
    /// Not shown to be slower than the best: the difference is within the noise of the run, or the intervals
    /// meet.
    Tie,
    /// Surely slower than the chosen one.
    Slower {
        /// Its time divided by the chosen one's.
        by: f64,
    },
    /// It would do, and was not measured on such ends.
    Unmeasured,
    /// It cannot or may not do this job.
    Unfit {
        /// Why.
        reason: String,
    },
}

impl Judgement {
    /// Whether the candidate could do the job.
    pub fn is_usable(&self) -> bool {
        !matches!(self, Self::Unfit { .. })
    }
}

impl Evidence {
    /// Whether it is not shown to cost more than `best`, within at most this share of that.
    pub fn ties_with(&self, best: f64, prefer: Prefer, most: f64) -> bool {
        self.score(prefer) <= best * (1.0 + self.noise.min(most))
    }

    /// Whether it is shown to cost more than another one: by more than the noise, and surely.
    pub fn is_shown_to_cost_more(&self, other: &Self, prefer: Prefer) -> bool {
        self.is_surely_beyond(other, prefer)
            && !self.ties_with(other.score(prefer), prefer, f64::MAX)
    }

    /// Whether the whole interval lies beyond that of another one. Memory is counted, and has none.
    fn is_surely_beyond(&self, other: &Self, prefer: Prefer) -> bool {
        prefer == Prefer::Memory || self.counted(prefer).lo > other.counted(prefer).hi
    }
}

/// Where a usable candidate goes; the order of the list decides between equal places.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
struct Place {
    class: Class,
    /// Of those that are shown to be slower, and the processor time of those of which that goes by the reader; 0
    /// for the others.
    cost: f64,
    /// Of those that measuring does not tell apart; 0 for the others.
    guess: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
enum Class {
    SavesWork,
    Best,
    Slower,
    Unmeasured,
}

impl Evidence {
    /// Whether a choice may take it for the best: little would be lost, or which of the two is better goes by the
    /// reader at the other end.
    fn is_near(&self, best: &Self, prefer: Prefer) -> bool {
        self.ties_with(best.score(prefer), prefer, GIVEN_UP_FOR_SAFETY)
            || prefer == Prefer::Wall && self.is_as_good_for_some_reader(best, GIVEN_UP_FOR_SAFETY)
    }
}

impl Place {
    fn of<N>(candidate: &Candidate<N>, best: Option<&Evidence>, prefer: Prefer) -> Self {
        let guess = candidate.prior.guess;
        let by_guess = |class| Self { class, cost: 0.0, guess };
        match (&candidate.evidence, best) {
            // Nobody knows who will read.
            (Some(e), Some(best)) if e.is_near(best, prefer) && !best.by_reader.is_empty() => {
                let cost = if prefer == Prefer::Wall { e.cpu.ratio } else { 0.0 };
                Self { class: Class::Best, cost, guess }
            }
            (Some(e), Some(best)) if e.is_near(best, prefer) => by_guess(Class::Best),
            (Some(e), _) => Self { class: Class::Slower, cost: e.score(prefer), guess: 0 },
            (None, _) if candidate.prior.saves_work => by_guess(Class::SavesWork),
            (None, _) => by_guess(Class::Unmeasured),
        }
    }
}

/// A verdict for every candidate: the chosen one, the other usable ones in the order in which they
/// are to be tried, then the unfit in the order of the list.
pub fn rank<N>(candidates: Vec<Candidate<N>>, prefer: Prefer) -> Vec<Verdict<N>> {
    let (mut usable, unfit): (Vec<_>, Vec<_>) =
        candidates.into_iter().partition(|candidate| candidate.fits.is_ok());
    let evidence = usable.iter().filter_map(|candidate| candidate.evidence.as_ref());
    let best = evidence.min_by(|a, b| a.score(prefer).total_cmp(&b.score(prefer))).cloned();
    // Stable: where nothing else decides the list does.
    usable.sort_by(|a, b| {
        let (a, b) = (Place::of(a, best.as_ref(), prefer), Place::of(b, best.as_ref(), prefer));
        a.partial_cmp(&b).unwrap_or(Ordering::Equal)
    });
    let time = |evidence: &Evidence| evidence.counted(prefer).ratio;
    let first = usable.first().and_then(|first| first.evidence.as_ref()).map(time);
    // What the chosen one is compared by, if it was measured; else the best of those that were.
    let top = usable.iter().find_map(|candidate| candidate.evidence.clone());
    let goes_by_the_reader = prefer == Prefer::Wall
        && usable.iter().skip(1).any(|other| {
            let both = top.as_ref().zip(other.evidence.as_ref());
            both.is_some_and(|(top, other)| top.flips_with(other))
        });
    let judge = |(n, candidate): (usize, Candidate<N>)| {
        let is_tie = |e: &Evidence| {
            let is_shown = top.as_ref().is_some_and(|top| e.is_surely_beyond(top, prefer));
            let is_as_good = |best: &Evidence| {
                e.ties_with(best.score(prefer), prefer, f64::MAX) || e.is_near(best, prefer)
            };
            !is_shown || best.as_ref().is_some_and(is_as_good)
        };
        let judgement = match (n, &candidate.evidence) {
            (0, Some(_)) if goes_by_the_reader => {
                let why = "least processor time: which one is fastest goes by the reader";
                Judgement::Chosen { why: why.to_owned() }
            }
            (0, Some(evidence)) => Judgement::Chosen { why: measured_why(evidence, prefer) },
            (0, None) => Judgement::Chosen { why: candidate.prior.why.to_owned() },
            (_, Some(e)) if is_tie(e) => Judgement::Tie,
            (_, Some(e)) => Judgement::Slower { by: time(e) / first.unwrap_or(1.0) },
            (_, None) => Judgement::Unmeasured,
        };
        candidate.verdict(judgement)
    };
    let usable = usable.into_iter().enumerate().map(judge);
    usable.chain(unfit.into_iter().map(Candidate::unfit)).collect()
}

impl<N> Candidate<N> {
    fn verdict(self, judgement: Judgement) -> Verdict<N> {
        let tuning = self.evidence.as_ref().map(|e| e.tuning.clone()).unwrap_or_default();
        Verdict { mechanism: self.name, tuning, judgement, evidence: self.evidence }
    }

    fn unfit(self) -> Verdict<N> {
        let reason = self.fits.as_ref().err().map(|unfit| unfit.reason.clone()).unwrap_or_default();
        Self { evidence: None, ..self }.verdict(Judgement::Unfit { reason })
    }
}

fn measured_why(evidence: &Evidence, prefer: Prefer) -> String {
    let why = match prefer {
        Prefer::Wall => "fastest measured",
        Prefer::Cpu => "least processor time measured",
        Prefer::Memory if evidence.score(prefer).is_finite() => "least memory measured",
        Prefer::Memory => "nobody measured the memory: first in the list",
    };
    why.to_owned()
}

#[cfg(test)]
mod tests;

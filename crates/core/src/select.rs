//! The single rule that chooses the best of several candidates: mechanisms between two endpoints or two processes, and
//! copy kernels.
//!
//! Candidates are listed in the order of their safety. A candidate that gives less than the required guarantees is
//! unfit and never chosen. If measurements do not distinguish two candidates, the earlier one in the list is preferred.
//! For sizes beyond the measured ones, the evidence of the nearest size applies
//! ([`MatchingCells`](crate::profile::MatchingCells)).

use serde::Serialize;
use std::cmp::Ordering;

use crate::{Prefer, Tuning, Unfit, profile::Evidence};

/// The largest share of time that a choice gives up for a safer candidate. Within this share, the safer one of two
/// candidates is chosen if they differ by less than the noise. Beyond it, the candidate with the better median is
/// chosen, however large the noise is.
pub const GIVEN_UP_FOR_SAFETY: f64 = 0.05;

/// A candidate for a job.
#[derive(Clone, Debug)]
pub struct Candidate<N = &'static str> {
    /// The name of the candidate.
    pub name: N,
    /// An error with the reason if the candidate cannot or must not do the job.
    pub fits: Result<(), Unfit>,
    /// The expectation without measurements.
    pub prior: Prior,
    /// The measurements of the candidate for this job.
    pub evidence: Option<Evidence>,
}

/// The expectation for a candidate without measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prior {
    /// `true` if the candidate does less work than a copy. If it was not measured, it is then preferred to all measured
    /// candidates.
    pub saves_work: bool,
    /// Rank among candidates that measurements cannot distinguish. The smallest rank is preferred.
    pub guess: u8,
    /// The reason to report if the candidate is chosen without measurements.
    pub why: &'static str,
}

impl Prior {
    /// No expectation except the position in the list.
    pub const NONE: Self = Self {
        saves_work: false,
        guess: 0,
        why: "not measured: first suitable method in `thalweg list`",
    };
}

/// Ranking result of one candidate.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict<N = &'static str> {
    /// The name of the candidate.
    pub mechanism: N,
    /// The tuning to use.
    pub tuning: Tuning,
    /// The judgement.
    #[serde(flatten)]
    pub judgement: Judgement,
    /// The measurements, if there are any.
    pub evidence: Option<Evidence>,
}

/// Judgement of one candidate.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "verdict", rename_all = "lowercase")]
pub enum Judgement {
    /// The candidate to use.
    Chosen {
        /// The reason, such as `fastest measured`, `least memory measured` or `requested`.
        why: String,
    },
    /// Not shown to be slower than the best: the difference is within the noise of the run, or the intervals overlap.
    Tie,
    /// Shown to be slower than the chosen candidate.
    Slower {
        /// The time of this candidate divided by that of the chosen one.
        by: f64,
    },
    /// The candidate can do the job, but was not measured between endpoints of these kinds.
    Unmeasured,
    /// The candidate cannot or must not do this job.
    Unfit {
        /// The reason.
        reason: String,
    },
}

impl Judgement {
    /// Returns `true` if the candidate could do the job.
    pub fn is_usable(&self) -> bool {
        !matches!(self, Self::Unfit { .. })
    }
}

impl Evidence {
    /// Returns `true` if this candidate costs no more than `best` plus the noise of the run. Noise above the share
    /// `most` counts as `most`.
    pub fn ties_with(&self, best: f64, prefer: Prefer, most: f64) -> bool {
        self.score(prefer) <= best * (1.0 + self.noise.min(most))
    }

    /// Returns `true` if this candidate is shown to cost more than `other`: by more than the noise, and with intervals
    /// that do not overlap.
    pub fn is_shown_to_cost_more(&self, other: &Self, prefer: Prefer) -> bool {
        self.is_surely_beyond(other, prefer)
            && !self.ties_with(other.score(prefer), prefer, f64::MAX)
    }

    /// Returns `true` if this candidate's whole interval is above that of `other`. Memory is exact and has no interval,
    /// so the result for [`Prefer::Memory`] is always `true`.
    fn is_surely_beyond(&self, other: &Self, prefer: Prefer) -> bool {
        prefer == Prefer::Memory || self.counted(prefer).lo > other.counted(prefer).hi
    }
}

/// The sort key of a usable candidate. Candidates with equal keys stay in the order of the list.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
struct RankKey {
    class: RankClass,
    /// In the class `Slower`, the measured cost. In the class `Best`, the CPU time if the fastest candidate depends on
    /// the reader. Otherwise 0.
    cost: f64,
    /// The prior's guess; 0 in the class `Slower`.
    guess: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
enum RankClass {
    SavesWork,
    Best,
    Slower,
    Unmeasured,
}

impl Evidence {
    /// Returns `true` if a choice may treat this candidate like the best one. It costs little more, or it is about as
    /// fast with one of the readers at the other end.
    fn is_near(&self, best: &Self, prefer: Prefer) -> bool {
        self.ties_with(best.score(prefer), prefer, GIVEN_UP_FOR_SAFETY)
            || prefer == Prefer::Wall && self.is_as_good_for_some_reader(best, GIVEN_UP_FOR_SAFETY)
    }
}

impl RankKey {
    fn of<N>(candidate: &Candidate<N>, best: Option<&Evidence>, prefer: Prefer) -> Self {
        let guess = candidate.prior.guess;
        let by_guess = |class| Self { class, cost: 0.0, guess };
        match (&candidate.evidence, best) {
            // The fastest candidate depends on the reader of this transfer, which is unknown. CPU time decides.
            (Some(e), Some(best)) if e.is_near(best, prefer) && !best.by_reader.is_empty() => {
                let cost = if prefer == Prefer::Wall { e.cpu.ratio } else { 0.0 };
                Self { class: RankClass::Best, cost, guess }
            }
            (Some(e), Some(best)) if e.is_near(best, prefer) => by_guess(RankClass::Best),
            (Some(e), _) => Self { class: RankClass::Slower, cost: e.score(prefer), guess: 0 },
            (None, _) if candidate.prior.saves_work => by_guess(RankClass::SavesWork),
            (None, _) => by_guess(RankClass::Unmeasured),
        }
    }
}

/// Returns a verdict for every candidate. The chosen one is first. The other usable ones follow in the order in which
/// to try them, then the unfit ones in list order.
pub fn rank<N>(candidates: Vec<Candidate<N>>, prefer: Prefer) -> Vec<Verdict<N>> {
    let (mut usable, unfit): (Vec<_>, Vec<_>) =
        candidates.into_iter().partition(|candidate| candidate.fits.is_ok());
    let evidence = usable.iter().filter_map(|candidate| candidate.evidence.as_ref());
    let best = evidence.min_by(|a, b| a.score(prefer).total_cmp(&b.score(prefer))).cloned();
    // The sort is stable, so candidates with equal keys stay in the order of the list.
    usable.sort_by(|a, b| {
        let (a, b) = (RankKey::of(a, best.as_ref(), prefer), RankKey::of(b, best.as_ref(), prefer));
        a.partial_cmp(&b).unwrap_or(Ordering::Equal)
    });
    let time = |evidence: &Evidence| evidence.counted(prefer).ratio;
    let first = usable.first().and_then(|first| first.evidence.as_ref()).map(time);
    // The others are compared with the chosen candidate if it was measured, else with the first measured one.
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
                let why = "least CPU time (the fastest method depends on how much the reader reads at a time)";
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
        Prefer::Cpu => "least CPU time measured",
        Prefer::Memory if evidence.score(prefer).is_finite() => "least memory measured",
        Prefer::Memory => "memory not measured: first suitable method in `thalweg list`",
    };
    why.to_owned()
}

#[cfg(test)]
mod tests;

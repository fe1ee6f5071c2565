//! What a tuning found, as data.

use serde::Serialize;
use std::collections::HashMap;
use thalweg_core::{
    Profile, Request, Tuning, Unfit, Verdict as Planned,
    profile::{Cell, Load, Ratio},
};

use super::slice::SliceFacts;
use crate::{
    arms::cp::Cp,
    measure::{busy::Busy, conditions::Conditions, log::Log, stats::Verdict},
    probes::other_work::kept_as,
};

#[derive(Clone, Debug, Serialize)]
pub struct TuneResult {
    /// Everything that was measured, `cp` among it, in order of entry.
    pub arms: Vec<ArmResult>,
    /// What the planner makes of it.
    pub winner: Option<Choice>,
    /// Mechanisms that show no difference from the winner.
    pub ties: Vec<&'static str>,
    /// Of a tree: the threads to take, as many as there are processors unless fewer were shown to be
    /// faster.
    pub jobs: Option<usize>,
    /// Of a tree: what was found of its largest file. `winner`, `ties`, `cells` and `unavailable`
    /// are from there.
    pub large_file: Option<Box<TuneResult>>,
    /// For the profile; see [`TuneResult::teach`].
    pub cells: Vec<Cell>,
    /// The noise floor of this run, as a fraction.
    pub noise: f64,
    /// Mechanisms for such ends that could not take part, and why.
    pub unavailable: Vec<Unavailable>,
    /// What was moved in each sample.
    pub slice: SliceFacts,
    /// The `cp` of the system; or why there is none.
    pub cp: Result<Cp, String>,
    pub conditions: Conditions,
    /// Rounds, and every sample in them.
    pub log: Log,
    /// Time on the clock for all of it.
    pub seconds: f64,
    /// How busy the machine was with other work before; `None` where that cannot be told.
    pub busy: Option<Busy>,
    /// The share of the samples that other work disturbed.
    pub disturbed: f64,
    /// Found unfit by trying. The planner has to be told.
    #[serde(skip)]
    pub unfit: HashMap<&'static str, Unfit>,
}

/// One arm. Ratios are of times: below 1 it took less.
#[derive(Clone, Debug, Serialize)]
pub struct ArmResult {
    /// `read-write`, `splice pipe=64K`, `cp --reflink=never`.
    pub name: String,
    /// The mechanism; `None` for `cp` and for trees.
    pub mechanism: Option<&'static str>,
    pub tuning: Tuning,
    /// The threads that copied a tree.
    pub jobs: Option<usize>,
    /// It does less than a copy here: a clone, or a copy made by a server.
    pub saves_work: bool,
    /// Time on the clock against `cp`, whose start counts.
    pub ratio_to_cp: Option<Ratio>,
    /// The same with the start of `cp` taken off: nearer to what a longer file would show. `None`
    /// where `cp` hardly did anything but start.
    pub ratio_to_cp_started: Option<Ratio>,
    /// Processor time against `cp`.
    pub cpu_ratio_to_cp: Option<Ratio>,
    /// The word for `ratio_to_cp`.
    pub against_cp: Option<Verdict>,
    /// Time on the clock against `read-write` at its default.
    pub ratio_to_read_write: Option<Ratio>,
    /// Processor time against it.
    pub cpu_ratio_to_read_write: Option<Ratio>,
    /// Rounds it took part in.
    pub rounds: usize,
    /// Why it was not sampled to the end.
    pub dropped: Option<String>,
}

/// A mechanism and how to tune it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Choice {
    pub mechanism: &'static str,
    pub tuning: Tuning,
}

impl Choice {
    pub(super) fn of(verdict: &Planned) -> Self {
        Self { mechanism: verdict.mechanism, tuning: verdict.tuning.clone() }
    }
}

/// A mechanism that could not take part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unavailable {
    pub name: &'static str,
    pub reason: String,
}

impl TuneResult {
    /// Under which load later copies may go by it: that of the idle machine, if nothing else was done; `None` if
    /// other work met it that was less than what a profile calls loaded.
    pub fn kept_as(&self) -> Option<Load> {
        let quiet = Busy { processors: 0.0, of: 1 };
        kept_as(&self.busy.unwrap_or(quiet), self.disturbed)
    }

    /// What later copies may go by: of a busy machine only what is known to be of one, or nothing.
    pub fn kept(&self) -> Vec<Cell> {
        let load = self.kept_as();
        let of = |load| self.cells.iter().map(move |cell| Cell { load, ..cell.clone() }).collect();
        load.map(of).unwrap_or_default()
    }

    /// Hands what was found to a profile and to the request of the job that follows: it is of the machine as it is
    /// now, whatever else that does.
    pub fn teach(&self, profile: &mut Profile, request: &mut Request) {
        profile.merge(self.cells.clone());
        request.unfit.extend(self.unfit.iter().map(|(name, unfit)| (*name, unfit.clone())));
    }

    /// Makes the choice among mechanisms that was measured on a tree's largest file its own.
    pub(super) fn take_choice_of(&mut self, large: Self) {
        self.winner.clone_from(&large.winner);
        self.ties.clone_from(&large.ties);
        self.cells.clone_from(&large.cells);
        self.unavailable.clone_from(&large.unavailable);
        self.unfit.clone_from(&large.unfit);
        self.disturbed = self.disturbed.max(large.disturbed);
        self.large_file = Some(Box::new(large));
    }
}

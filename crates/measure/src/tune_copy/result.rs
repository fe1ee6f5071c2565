//! The results of a tuning, as data.

use serde::Serialize;
use std::collections::HashMap;
use thalweg_core::{
    Profile, Request, Tuning, Unfit, Verdict as Planned,
    profile::{Cell, Load, Ratio},
};

use super::slice::SliceFacts;
use crate::{
    arms::cp::Cp, busy::BusyProcessors, conditions::Conditions, log::SampleLog,
    other_work::kept_as, stats::RatioVerdict,
};

#[derive(Clone, Debug, Serialize)]
pub struct TuneResult {
    /// Everything that was measured, including `cp`, in order of entry.
    pub arms: Vec<TunedArm>,
    /// The planner's choice from these results.
    pub winner: Option<CopyChoice>,
    /// Mechanisms that show no difference from the winner.
    pub ties: Vec<&'static str>,
    /// For a tree: the number of threads to use. It is the number of CPUs, unless fewer threads were faster with
    /// certainty.
    pub jobs: Option<usize>,
    /// For a tree: the results for its largest file. `winner`, `ties`, `cells` and `unavailable` are taken from it.
    pub large_file: Option<Box<TuneResult>>,
    /// Cells (measurements) for the profile; see [`TuneResult::teach`].
    pub cells: Vec<Cell>,
    /// The noise floor of this run, as a fraction.
    pub noise: f64,
    /// Mechanisms for these ends that could not take part, with the reason.
    pub unavailable: Vec<UnavailableArm>,
    /// The data that each sample moved.
    pub slice: SliceFacts,
    /// The `cp` of the system, or the reason why it could not be used.
    pub cp: Result<Cp, String>,
    pub conditions: Conditions,
    /// Rounds, and every sample in them.
    pub log: SampleLog,
    /// Total wall time in seconds.
    pub seconds: f64,
    /// How busy the machine was with other processes before the measurement; `None` if unknown.
    pub busy: Option<BusyProcessors>,
    /// The fraction of the samples that other processes disturbed.
    pub disturbed: f64,
    /// Mechanisms that failed when tried. The caller must pass them to the planner, so that the planner does not choose
    /// them.
    #[serde(skip)]
    pub unfit: HashMap<&'static str, Unfit>,
}

/// One arm (a compared variant). Ratios are of times: below 1 means less time.
#[derive(Clone, Debug, Serialize)]
pub struct TunedArm {
    /// The name, for example `read-write`, `splice pipe=64K` or `cp --reflink=never`.
    pub name: String,
    /// The mechanism; `None` for `cp` and for trees.
    pub mechanism: Option<&'static str>,
    pub tuning: Tuning,
    /// The number of threads that copied a tree.
    pub jobs: Option<usize>,
    /// `true` if the arm does less work on this machine than a copy: it clones, or a server copies.
    pub saves_work: bool,
    /// Wall time relative to `cp`, including the start-up time of `cp`.
    pub ratio_to_cp: Option<Ratio>,
    /// Wall time relative to `cp` without the start-up time of `cp`. This is closer to the ratio for a longer file.
    /// `None` if start-up is most of the time of `cp`.
    pub ratio_to_cp_started: Option<Ratio>,
    /// CPU time relative to `cp`.
    pub cpu_ratio_to_cp: Option<Ratio>,
    /// The verdict on `ratio_to_cp`.
    pub against_cp: Option<RatioVerdict>,
    /// Wall time relative to `read-write` at its default.
    pub ratio_to_read_write: Option<Ratio>,
    /// CPU time relative to `read-write` at its default.
    pub cpu_ratio_to_read_write: Option<Ratio>,
    /// The number of rounds in which the arm took part.
    pub rounds: usize,
    /// The reason why the arm was not sampled to the end.
    pub dropped: Option<String>,
}

/// A mechanism and its tuning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CopyChoice {
    pub mechanism: &'static str,
    pub tuning: Tuning,
}

impl CopyChoice {
    pub(super) fn of(verdict: &Planned) -> Self {
        Self { mechanism: verdict.mechanism, tuning: verdict.tuning.clone() }
    }
}

/// A mechanism that could not take part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnavailableArm {
    pub name: &'static str,
    pub reason: String,
}

impl TuneResult {
    /// Returns the load under which later copies may use the results: idle if the machine was idle. `None` if other
    /// processes were active, but less than a profile's `loaded` requires.
    pub fn kept_as(&self) -> Option<Load> {
        let quiet = BusyProcessors { processors: 0.0, of: 1 };
        kept_as(&self.busy.unwrap_or(quiet), self.disturbed)
    }

    /// Returns the cells that later copies may use, with the load that [`Self::kept_as`] returns. Empty if it returns
    /// `None`.
    pub fn kept(&self) -> Vec<Cell> {
        let load = self.kept_as();
        let of = |load| self.cells.iter().map(move |cell| Cell { load, ..cell.clone() }).collect();
        load.map(of).unwrap_or_default()
    }

    /// Adds the results to a profile and to the request of the job that follows. Adds them regardless of other
    /// processes: the next job runs beside these processes too.
    pub fn teach(&self, profile: &mut Profile, request: &mut Request) {
        profile.merge(self.cells.clone());
        request.unfit.extend(self.unfit.iter().map(|(name, unfit)| (*name, unfit.clone())));
    }

    /// Adopts the choice among mechanisms that was measured on a tree's largest file.
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

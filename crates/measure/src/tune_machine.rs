//! The engine behind `thalweg tune`: surveys of pairs of endpoints for the profile of the machine.
//!
//! A survey consists of K sessions, each in a fresh process. They are spread over the whole run, in random order among
//! the sessions of the other surveys. A session measures one size after the other in interleaved rounds. Before the
//! sessions, a scouting session picks the tunings worth measuring. The samples of the scouting session are not reused.

pub mod advice;
pub mod check;
mod contest;
pub mod emit;
mod grid;
mod job;
mod met;
mod pair;
mod pair_survey;
pub mod regret;
mod runner;
mod scout;
pub mod sentinel;
mod session;
mod share;
mod table;

pub use grid::{Depth, between, busy_cores, loads};
pub use job::{ContestJob, ContestLog, EndKeys, SizeLog, SurveyLine, TunedMethod, WantedMethods};
pub use met::OtherWork;
pub use pair::{EndKind, EndPair, MemoryOwner};
pub use pair_survey::PairSurvey;
pub use runner::{InProcess, Runner, Spawned, serve};
pub use table::{SurveyRow, facts_between, metric_of, rows, verdict_on};

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};
use thalweg_core::{
    Cancelled, Profile,
    profile::{Cell, Load, SinkState},
};

use crate::{StopCheck, busy::BusyProcessors, conditions, stats::Random};

/// The pairs and loads to measure, and the time limit.
pub struct SurveyPlan<'p> {
    pub pairs: Vec<EndPair>,
    pub depth: Depth,
    /// Wall time for everything. A session that has started may exceed it slightly.
    pub budget: Duration,
    pub loads: Vec<Load>,
    pub seed: u64,
    /// Called every few milliseconds.
    pub stop: &'p StopCheck<'p>,
}

/// A survey before its first session.
pub struct PlannedSurvey {
    pub survey: PairSurvey,
    /// Bytes per transfer, ascending.
    pub sizes: Vec<u64>,
    /// The tunings that take part in addition to the defaults.
    pub ways: Vec<TunedMethod>,
}

impl SurveyPlan<'_> {
    /// Returns a survey for every pair, every state of its sink and every load, with the sizes and tunings that `of`
    /// returns for the pair.
    fn surveys(
        &self,
        mut of: impl FnMut(&EndPair) -> (Vec<u64>, Vec<TunedMethod>),
    ) -> Vec<PlannedSurvey> {
        let mut planned = Vec::new();
        for ends in &self.pairs {
            let (sizes, ways) = of(ends);
            for sink_state in ends.contest().sink_states(ends, self.depth) {
                for load in self.loads.iter().filter(|load| ends.contest().counts_under(**load)) {
                    let (ends, sink_state) = (ends.clone(), *sink_state);
                    let survey = PairSurvey { ends, load: *load, sink_state, sessions: Vec::new() };
                    let (sizes, ways) = (sizes.clone(), ways.clone());
                    planned.push(PlannedSurvey { survey, sizes, ways });
                }
            }
        }
        planned
    }

    /// Returns the bytes per transfer between these ends, ascending.
    fn sizes(&self, ends: &EndPair) -> Vec<u64> {
        let mut sizes = self.depth.sizes(ends);
        sizes.extend(self.depth.largest(ends, self.budget));
        sizes
    }
}

/// The progress of a survey.
#[derive(Clone, Debug)]
pub struct SurveyProgress<'p> {
    pub done: usize,
    pub of: usize,
    pub ends: &'p EndPair,
    pub load: Load,
    /// `true` for a scouting session.
    pub scouting: bool,
    /// How busy the machine was with other processes before the session; `None` if it was nearly idle.
    pub other_work: Option<BusyProcessors>,
    /// Remaining time according to the plan.
    pub left: Duration,
}

#[derive(Clone, Debug)]
pub struct SurveyResult {
    /// All surveys with all of their samples.
    pub surveys: Vec<PairSurvey>,
    /// The cells for the profile; see [`Profile::replace`].
    pub cells: Vec<Cell>,
    /// The reasons why sessions failed, without duplicates.
    pub troubles: Vec<String>,
    /// Number of started sessions, including scouting sessions.
    pub sessions: usize,
    /// Total wall time.
    pub seconds: f64,
    /// The sessions that other processes disturbed.
    pub met: OtherWork,
}

impl SurveyResult {
    /// Adds the results to a profile.
    pub fn teach(&self, profile: &mut Profile) {
        profile.replace(self.cells.clone());
    }
}

pub fn survey(
    plan: &SurveyPlan<'_>,
    runner: &mut dyn Runner,
    report: &mut dyn FnMut(&SurveyProgress<'_>),
) -> Result<SurveyResult, Cancelled> {
    let mut run = SurveyRun::new(plan, runner, report);
    let mut planned = plan.surveys(|ends| (plan.sizes(ends), Vec::new()));
    let mut picked: BTreeMap<(EndPair, SinkState), Vec<TunedMethod>> = BTreeMap::new();
    for PlannedSurvey { survey, .. } in
        planned.iter().filter(|one| one.survey.ends.contest().has_knobs())
    {
        picked.insert((survey.ends.clone(), survey.sink_state), Vec::new());
    }
    let sessions = plan.depth.preset().sessions;
    run.of = planned.len() * sessions + picked.len();
    for ((ends, sink_state), ways) in &mut picked {
        let sizes = scout::sizes(&plan.sizes(ends));
        let job = run.job(ends, Load::Idle, *sink_state, sizes, WantedMethods::All);
        let log = run.session(&ContestJob { rounds: scout::ROUNDS, ..job }, true)?;
        *ways = scout::pick(&log);
    }
    for PlannedSurvey { survey, ways, .. } in &mut planned {
        let of_it = picked.get(&(survey.ends.clone(), survey.sink_state));
        *ways = of_it.cloned().unwrap_or_default();
    }
    let (surveys, met) = run.sessions(planned, sessions)?;
    let at = conditions::now();
    let cells = surveys.iter().flat_map(|survey| survey.cells(&at)).collect();
    Ok(SurveyResult {
        cells,
        surveys,
        troubles: run.troubles,
        sessions: run.done,
        seconds: run.began.elapsed().as_secs_f64(),
        met,
    })
}

/// The sessions of a plan, run one after the other. Each gets its share of the remaining time.
pub struct SurveyRun<'r> {
    plan: &'r SurveyPlan<'r>,
    runner: &'r mut dyn Runner,
    report: &'r mut dyn FnMut(&SurveyProgress<'_>),
    began: Instant,
    done: usize,
    /// The total number of sessions.
    pub of: usize,
    pub random: Random,
    pub troubles: Vec<String>,
    /// The most recent measurement of how busy the machine is with other processes.
    look: Option<BusyProcessors>,
}

impl<'r> SurveyRun<'r> {
    pub fn new(
        plan: &'r SurveyPlan<'r>,
        runner: &'r mut dyn Runner,
        report: &'r mut dyn FnMut(&SurveyProgress<'_>),
    ) -> Self {
        let (began, random) = (Instant::now(), Random::new(plan.seed));
        let look = runner.busy();
        Self { plan, runner, report, began, done: 0, of: 1, random, troubles: Vec::new(), look }
    }

    pub fn job(
        &mut self,
        ends: &EndPair,
        load: Load,
        sink_state: SinkState,
        sizes: Vec<u64>,
        ways: WantedMethods,
    ) -> ContestJob {
        let left = self.plan.budget.saturating_sub(self.began.elapsed());
        let budget = left / self.of.saturating_sub(self.done).max(1) as u32;
        let (ends, rounds, seed) =
            (ends.clone(), self.plan.depth.preset().rounds, self.random.bits());
        ContestJob { ends, load, sink_state, sizes, ways, rounds, budget, seed, exact: false }
    }

    /// Runs this number of sessions of each survey. Each pass runs every survey once, in a new random order.
    /// Afterwards, separates the sessions that other processes disturbed (see [`OtherWork`]).
    pub fn sessions(
        &mut self,
        mut planned: Vec<PlannedSurvey>,
        count: usize,
    ) -> Result<(Vec<PairSurvey>, OtherWork), Cancelled> {
        for _ in 0..count {
            let mut order: Vec<usize> = (0..planned.len()).collect();
            self.random.shuffle(&mut order);
            for n in order {
                let PlannedSurvey { survey, sizes, ways } = &mut planned[n];
                let (load, sink_state) = (survey.load, survey.sink_state);
                let ways = WantedMethods::These(ways.clone());
                let job = self.job(&survey.ends, load, sink_state, sizes.clone(), ways);
                survey.sessions.push(self.session(&job, false)?);
            }
        }
        Ok(met::sorted(planned.into_iter().map(|one| one.survey)))
    }

    pub fn session(&mut self, job: &ContestJob, scouting: bool) -> Result<ContestLog, Cancelled> {
        (self.report)(&SurveyProgress {
            done: self.done,
            of: self.of,
            ends: &job.ends,
            load: job.load,
            scouting,
            other_work: self.look.filter(BusyProcessors::is_crowded),
            left: self.plan.budget.saturating_sub(self.began.elapsed()),
        });
        let mut log = self.runner.run(job, self.plan.stop);
        let before = std::mem::replace(&mut self.look, self.runner.busy());
        log.around = before.zip(self.look).map(|(before, after)| before.or_busier(after));
        self.done += 1;
        (self.plan.stop)()?;
        if let Some(reason) = &log.failed {
            let trouble = format!("{}: {reason}", job.ends);
            if !self.troubles.contains(&trouble) {
                self.troubles.push(trouble);
            }
        }
        Ok(log)
    }

    pub fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }
}

#[cfg(test)]
mod tests;

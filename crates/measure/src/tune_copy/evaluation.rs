//! Computes the result from the samples.

use thalweg_core::{
    EndFacts, Facts, Judgement, Mechanism, Plan, Prefer, Profile, Request, Tuning,
    profile::{Cell, Load, Ratio, SinkState},
};

use super::{
    TuneClock,
    result::{CopyChoice, TuneResult, TunedArm, UnavailableArm},
    slice::SliceFacts,
};
use crate::{
    arms::cp::Cp,
    conditions::Conditions,
    contamination::disturbed,
    log::SampleLog,
    outcome::RatioOutcome,
    sample::{Sample, SampleMetric},
    stats::{Random, RatioVerdict, median, ratio_of_rounds},
};

/// The method that an arm of the log measures.
pub(super) enum TuneSubject {
    Mechanism {
        mechanism: &'static dyn Mechanism,
        tuning: Tuning,
    },
    /// The copy of a tree with this number of threads.
    Threads(usize),
    /// The system's `cp` command.
    Peer(String),
}

impl TuneSubject {
    pub fn name(&self) -> String {
        match self {
            Self::Mechanism { mechanism, tuning } if tuning.is_default() => {
                mechanism.info().name.to_owned()
            }
            Self::Mechanism { mechanism, tuning } => format!("{} {tuning}", mechanism.info().name),
            Self::Threads(1) => "1 thread".to_owned(),
            Self::Threads(jobs) => format!("{jobs} threads"),
            Self::Peer(command) => command.clone(),
        }
    }
}

/// A finished measurement before evaluation.
pub(super) struct Measured {
    pub log: SampleLog,
    pub subjects: Vec<TuneSubject>,
    /// The index of the reference arm (ratio 1).
    pub reference: usize,
    pub cp: Result<Cp, String>,
    pub starts: Vec<f64>,
    pub slice: SliceFacts,
    pub conditions: Conditions,
    pub unavailable: Vec<UnavailableArm>,
}

impl Measured {
    /// Evaluates the measurement. The planner chooses the winner, so that the decision is made in one place.
    pub fn result(
        mut self,
        facts: Option<&Facts>,
        request: &Request,
        clock: TuneClock,
        random: &mut Random,
    ) -> TuneResult {
        let metrics = [SampleMetric::Wall, SampleMetric::Cpu];
        let noise = metrics.map(|metric| self.log.noise(&metric, random));
        let noise = noise[usize::from(request.prefer == Prefer::Cpu)];
        if let (Ok(cp), Some(startup)) = (&mut self.cp, median(&self.starts)) {
            cp.startup = startup;
        }
        let disturbed = disturbed(&self.log);
        let arms = 0..self.subjects.len();
        let arms: Vec<TunedArm> = arms.map(|arm| self.arm(arm, facts, noise, random)).collect();
        let cells = facts.map(|facts| self.cells(&arms, facts, noise, random)).unwrap_or_default();
        let profile = Profile { cells, ..Profile::new() };
        let plan = facts.map(|facts| Plan::make(facts, request, Some(&profile)));
        let chosen = plan.as_ref().and_then(Plan::chosen).filter(|v| v.evidence.is_some());
        let verdicts = plan.as_ref().map_or(&[][..], |plan| &plan.verdicts);
        let tied = verdicts.iter().filter(|v| v.judgement == Judgement::Tie);
        TuneResult {
            winner: chosen.map(CopyChoice::of),
            ties: tied.map(|verdict| verdict.mechanism).collect(),
            jobs: None,
            large_file: None,
            arms,
            cells: profile.cells,
            noise,
            unavailable: self.unavailable,
            slice: self.slice,
            cp: self.cp,
            conditions: self.conditions,
            log: self.log,
            seconds: clock.spent().as_secs_f64(),
            busy: None,
            disturbed,
            unfit: request.unfit.clone(),
        }
    }

    fn peer(&self) -> Option<usize> {
        self.subjects.iter().position(|subject| matches!(subject, TuneSubject::Peer(_)))
    }

    /// Returns `true` if the start-up time of `cp` is less than half of its total time.
    fn is_mostly_moving(&self, peer: usize, startup: f64) -> bool {
        let walls: Vec<f64> = self.log.samples(peer).map(Sample::wall_seconds).collect();
        median(&walls).is_some_and(|wall| startup < wall / 2.0)
    }

    fn arm(&self, arm: usize, facts: Option<&Facts>, noise: f64, random: &mut Random) -> TunedArm {
        let log = &self.log;
        let (mechanism, tuning, saves_work) = match &self.subjects[arm] {
            TuneSubject::Mechanism { mechanism, tuning } => {
                let saves = facts.is_some_and(|facts| mechanism.saves_work(facts));
                (Some(mechanism.info().name), tuning.clone(), saves)
            }
            TuneSubject::Threads(_) | TuneSubject::Peer(_) => (None, Tuning::default(), false),
        };
        let startup = self.cp.as_ref().map_or(0.0, |cp| cp.startup);
        let of_mechanisms = mechanism.is_some() || facts.is_some();
        let reference = Some(self.reference).filter(|_| of_mechanisms);
        let mut to = |other: Option<usize>, metric| match other {
            Some(other) if other == arm => Some(Ratio::ONE),
            Some(other) => log.ratio(arm, other, &metric, random),
            None => None,
        };
        let ratio_to_cp = to(self.peer(), SampleMetric::Wall);
        let cpu_ratio_to_cp = to(self.peer(), SampleMetric::Cpu);
        let ratio_to_read_write = to(reference, SampleMetric::Wall);
        let cpu_ratio_to_read_write = to(reference, SampleMetric::Cpu);
        let started = |sample: &Sample| {
            // `startup` is a median, so it can exceed the time of a short sample. The result is at least a tenth of
            // that time.
            (sample.wall_seconds() - startup).max(sample.wall_seconds() / 10.0)
        };
        let other =
            self.peer().filter(|peer| *peer != arm && self.is_mostly_moving(*peer, startup));
        let ratio_to_cp_started = other.and_then(|peer| {
            let pairs = log.costs(arm, &SampleMetric::Wall).against(&log.costs(peer, &started));
            ratio_of_rounds(&pairs, random)
        });
        TunedArm {
            name: log.arms[arm].name.clone(),
            mechanism,
            tuning,
            jobs: match &self.subjects[arm] {
                TuneSubject::Threads(jobs) => Some(*jobs),
                _ => None,
            },
            saves_work,
            against_cp: ratio_to_cp.map(|ratio| RatioOutcome { ratio, noise }.word()),
            ratio_to_cp,
            ratio_to_cp_started,
            cpu_ratio_to_cp,
            ratio_to_read_write,
            cpu_ratio_to_read_write,
            rounds: log.rounds_of(arm),
            dropped: log.arms[arm].dropped.clone(),
        }
    }

    /// Returns a cell (a measurement) for every arm that has enough samples for an interval and did not
    /// fail. Non-default tunings get a cell only if they are faster than the default with certainty, because the
    /// planner takes the best tuning by any margin.
    fn cells(
        &self,
        arms: &[TunedArm],
        facts: &Facts,
        noise: f64,
        random: &mut Random,
    ) -> Vec<Cell> {
        let options = [&facts.source, &facts.sink].map(EndFacts::options);
        let bytes = self.slice.bytes;
        let better = |arm: usize, default: usize, metric, random: &mut Random| {
            let shown = self.log.ratio(arm, default, &metric, random);
            shown.is_some_and(|ratio| RatioOutcome { ratio, noise }.word() == RatioVerdict::Faster)
        };
        let worth_it = |(number, arm): &(usize, &TunedArm)| {
            let is_default = |a: &TunedArm| a.mechanism == arm.mechanism && a.tuning.is_default();
            let shown = match arms.iter().position(is_default) {
                Some(default) if default != *number => {
                    better(*number, default, SampleMetric::Wall, random)
                        || better(*number, default, SampleMetric::Cpu, random)
                }
                _ => true,
            };
            shown && !self.log.arms[*number].failed
        };
        let cells = arms.iter().enumerate().filter(worth_it).filter_map(|(number, arm)| {
            let walls: Vec<f64> = self.log.samples(number).map(Sample::wall_seconds).collect();
            Some(Cell {
                source: facts.source.key(),
                sink: facts.sink.key(),
                options: options.clone(),
                mechanism: arm.mechanism?.to_owned(),
                tuning: arm.tuning.clone(),
                size: bytes,
                load: Load::Idle,
                sink_state: SinkState::Fresh,
                wall: arm.ratio_to_read_write?,
                cpu: arm.cpu_ratio_to_read_write?,
                noise,
                ns_per_byte: median(&walls)? * 1e9 / bytes as f64,
                memory: None,
                sessions: 1,
                rounds: arm.rounds as u32,
                at: self.conditions.at.clone(),
                provisional: false,
            })
        });
        cells.collect()
    }
}

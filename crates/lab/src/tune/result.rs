//! What a tuning found, as data.

use serde::Serialize;
use std::collections::HashMap;
use thalweg_core::{
    Facts, Judgement, Mechanism, Plan, Profile, Request, Tuning, Unfit,
    profile::{Cell, Load, Ratio},
};

use super::{Clock, slice::SliceFacts};
use crate::{
    conditions::Conditions,
    contamination::{Mark, marks},
    peer::Cp,
    rounds::Log,
    sample::{Metric, Sample},
    stats::{Random, Spread, Verdict, median, noise_floor, ratio_of_rounds, verdict},
};

/// What a tuning found.
#[derive(Clone, Debug, Serialize)]
pub struct TuneResult {
    /// Everything that was measured, `cp` among it, in order of entry.
    pub arms: Vec<ArmResult>,
    /// What the planner makes of it.
    pub winner: Option<Choice>,
    /// Mechanisms that show no difference from the winner.
    pub ties: Vec<&'static str>,
    /// Of a tree: the threads that were best, the fewest that show no difference from the best.
    pub jobs: Option<usize>,
    /// Of a tree: what was found of its largest file. `winner`, `ties`, `cells` and `unavailable`
    /// are from there.
    pub large_file: Option<Box<TuneResult>>,
    /// For the profile; see [`TuneResult::teach`].
    pub cells: Vec<Cell>,
    /// The noise floor of this run, as a fraction.
    pub noise: f64,
    /// Comparisons made: of twenty that are idle one shows something.
    pub comparisons: usize,
    /// Mechanisms for such ends that could not take part, and why.
    pub unavailable: Vec<Unavailable>,
    /// What was moved in each sample.
    pub slice: SliceFacts,
    /// The `cp` of the system; or why there is none.
    pub cp: Result<Cp, String>,
    /// What it was measured under.
    pub conditions: Conditions,
    /// Samples that measured something besides their arm, maybe. They count all the same.
    pub marked: Vec<Mark>,
    /// Rounds, and every sample in them.
    pub log: Log,
    /// Time on the clock for all of it.
    pub seconds: f64,
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
    /// Its tuning.
    pub tuning: Tuning,
    /// It does less than a copy here: a clone, or a copy made by a server.
    pub saves_work: bool,
    /// Time on the clock against `cp`, whose start counts.
    pub ratio_to_cp: Option<Ratio>,
    /// The same with the start of `cp` taken off: nearer to what a longer file would show.
    pub ratio_to_cp_started: Option<Ratio>,
    /// Processor time against `cp`.
    pub cpu_ratio_to_cp: Option<Ratio>,
    /// The word for `ratio_to_cp`.
    pub against_cp: Option<Verdict>,
    /// Time on the clock against `read-write` at its default.
    pub ratio_to_read_write: Option<Ratio>,
    /// Processor time against it.
    pub cpu_ratio_to_read_write: Option<Ratio>,
    /// Seconds on the clock of a sample.
    pub wall: Spread,
    /// Seconds of processor time of a sample.
    pub cpu: Spread,
    /// Rounds it took part in.
    pub rounds: usize,
    /// Why it was not sampled to the end.
    pub dropped: Option<String>,
    /// How many of its samples are marked.
    pub marked: usize,
}

/// A mechanism and how to tune it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// The mechanism.
    pub mechanism: &'static str,
    /// Its tuning.
    pub tuning: Tuning,
}

impl Choice {
    fn of(verdict: &thalweg_core::Verdict) -> Self {
        Self { mechanism: verdict.mechanism, tuning: verdict.tuning.clone() }
    }
}

/// A mechanism that could not take part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unavailable {
    /// Its name.
    pub name: &'static str,
    /// Why.
    pub reason: String,
}

impl TuneResult {
    /// Hands what was found to a profile and to the request of the job that follows.
    pub fn teach(&self, profile: &mut Profile, request: &mut Request) {
        profile.merge(self.cells.clone());
        profile.noise = self.large_file.as_ref().map_or(self.noise, |large| large.noise);
        request.unfit.extend(self.unfit.iter().map(|(name, unfit)| (*name, unfit.clone())));
    }

    /// Makes the choice among mechanisms that was measured on a tree's largest file its own.
    pub(super) fn take_choice_of(&mut self, large: Self) {
        self.winner.clone_from(&large.winner);
        self.ties.clone_from(&large.ties);
        self.cells.clone_from(&large.cells);
        self.unavailable.clone_from(&large.unavailable);
        self.unfit.clone_from(&large.unfit);
        self.comparisons += large.comparisons;
        self.large_file = Some(Box::new(large));
    }
}

/// What an arm of the log is.
pub(super) enum Subject {
    Mechanism {
        mechanism: &'static dyn Mechanism,
        tuning: Tuning,
    },
    /// The copy of a tree with some number of threads.
    Threads,
    Peer,
}

/// A finished measurement, not yet summed up.
pub(super) struct Measured {
    pub log: Log,
    pub subjects: Vec<Subject>,
    /// The number of the arm of ratio 1.
    pub reference: usize,
    pub cp: Result<Cp, String>,
    /// Seconds of its starts.
    pub starts: Vec<f64>,
    pub slice: SliceFacts,
    pub conditions: Conditions,
    pub unavailable: Vec<Unavailable>,
}

impl Measured {
    /// Sums up. The winner is the planner's own, so that nobody decides twice.
    pub fn result(
        mut self,
        facts: Option<&Facts>,
        request: &Request,
        (clock, random): (Clock, &mut Random),
    ) -> TuneResult {
        let metrics = [Metric::Wall, Metric::Cpu];
        let noise = metrics.map(|metric| noise_floor(&self.log.doubled(metric), random));
        let noise = noise[usize::from(request.prefer == thalweg_core::Prefer::Cpu)];
        if let (Ok(cp), Some(startup)) = (&mut self.cp, median(&self.starts)) {
            cp.startup = startup;
        }
        let marked = marks(&self.log, self.peer());
        let arms: Vec<ArmResult> = (0..self.subjects.len())
            .map(|arm| {
                let of_it = marked.iter().filter(|mark| mark.arm == arm && mark.round.is_some());
                let marked = of_it.count();
                ArmResult { marked, ..self.arm(arm, facts, noise, random) }
            })
            .collect();
        let cells = facts.map(|facts| self.cells(&arms, (facts, noise))).unwrap_or_default();
        let profile = Profile { cells, noise, ..Profile::new() };
        let plan = facts.map(|facts| Plan::make(facts, request, Some(&profile)));
        let chosen = plan.as_ref().and_then(Plan::chosen).filter(|v| v.evidence.is_some());
        let verdicts = plan.as_ref().map_or(&[][..], |plan| &plan.verdicts);
        let tied = verdicts.iter().filter(|v| v.judgement == Judgement::Tie);
        TuneResult {
            winner: chosen.map(Choice::of),
            ties: tied.map(|verdict| verdict.mechanism).collect(),
            jobs: None,
            large_file: None,
            comparisons: arms.iter().map(ArmResult::comparisons).sum(),
            arms,
            cells: profile.cells,
            noise,
            unavailable: self.unavailable,
            slice: self.slice,
            cp: self.cp,
            conditions: self.conditions,
            marked,
            log: self.log,
            seconds: clock.spent().as_secs_f64(),
            unfit: request.unfit.clone(),
        }
    }

    fn peer(&self) -> Option<usize> {
        self.subjects.iter().position(|subject| matches!(subject, Subject::Peer))
    }

    fn arm(&self, arm: usize, facts: Option<&Facts>, noise: f64, random: &mut Random) -> ArmResult {
        let log = &self.log;
        let (mechanism, tuning, saves_work) = match &self.subjects[arm] {
            Subject::Mechanism { mechanism, tuning } => {
                let saves = facts.is_some_and(|facts| mechanism.saves_work(facts));
                (Some(mechanism.info().name), tuning.clone(), saves)
            }
            Subject::Threads | Subject::Peer => (None, Tuning::default(), false),
        };
        let startup = self.cp.as_ref().map_or(0.0, |cp| cp.startup);
        let of_mechanisms = mechanism.is_some() || facts.is_some();
        let reference = Some(self.reference).filter(|_| of_mechanisms);
        let mut to = |other: Option<usize>, metric| match other {
            Some(other) if other == arm => Some(Ratio::ONE),
            Some(other) => ratio_of_rounds(&log.paired(arm, other, metric), random),
            None => None,
        };
        let ratio_to_cp = to(self.peer(), Metric::Wall);
        let cpu_ratio_to_cp = to(self.peer(), Metric::Cpu);
        let ratio_to_read_write = to(reference, Metric::Wall);
        let cpu_ratio_to_read_write = to(reference, Metric::Cpu);
        let started = |sample: &Sample| {
            // A start can be quicker than the median one; what is left is then hardly measured.
            (sample.wall_seconds() - startup).max(sample.wall_seconds() / 10.0)
        };
        let ratio_to_cp_started = self.peer().filter(|peer| *peer != arm).and_then(|peer| {
            let pairs = log.paired_by(arm, peer, &|s| Metric::Wall.of(s), &started);
            ratio_of_rounds(&pairs, random)
        });
        let spread = |metric: Metric| {
            let costs: Vec<f64> = log.samples(arm).map(|s| metric.of(s)).collect();
            Spread::of(&costs).unwrap_or_default()
        };
        ArmResult {
            name: log.arms[arm].name.clone(),
            mechanism,
            tuning,
            saves_work,
            against_cp: ratio_to_cp.map(|ratio| verdict(&ratio, noise)),
            ratio_to_cp,
            ratio_to_cp_started,
            cpu_ratio_to_cp,
            ratio_to_read_write,
            cpu_ratio_to_read_write,
            wall: spread(Metric::Wall),
            cpu: spread(Metric::Cpu),
            rounds: log.rounds_of(arm),
            dropped: log.arms[arm].dropped.clone(),
            marked: 0,
        }
    }

    /// A cell for every arm that was sampled often enough for an interval and did not fail; for
    /// other tunings than the default only where they are better by more than the noise, for the
    /// planner takes the best tuning without asking by how much.
    fn cells(&self, arms: &[ArmResult], (facts, noise): (&Facts, f64)) -> Vec<Cell> {
        let options = [&facts.source, &facts.sink]
            .map(|end| end.fs.as_ref().map(|fs| fs.options.clone()).unwrap_or_default());
        let bytes = self.slice.bytes;
        let wall = |arm: &ArmResult| arm.ratio_to_read_write.map_or(f64::MAX, |r| r.ratio);
        let cpu = |arm: &ArmResult| arm.cpu_ratio_to_read_write.map_or(f64::MAX, |r| r.ratio);
        let worth_it = |(number, arm): &(usize, &ArmResult)| {
            let mut defaults = arms.iter().filter(|a| a.mechanism == arm.mechanism);
            let default = defaults.find(|a| a.tuning.is_default());
            let better = |cost: &dyn Fn(&ArmResult) -> f64| {
                default.is_none_or(|default| cost(arm) * (1.0 + noise) < cost(default))
            };
            let shown = arm.tuning.is_default() || better(&wall) || better(&cpu);
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
                wall: arm.ratio_to_read_write?,
                cpu: arm.cpu_ratio_to_read_write?,
                ns_per_byte: median(&walls)? * 1e9 / bytes as f64,
                sessions: 1,
                rounds: arm.rounds as u32,
                at: self.conditions.at.clone(),
            })
        });
        cells.collect()
    }
}

impl ArmResult {
    fn comparisons(&self) -> usize {
        let ratios = [self.ratio_to_cp, self.ratio_to_read_write];
        ratios.into_iter().flatten().filter(|ratio| *ratio != Ratio::ONE).count()
    }
}

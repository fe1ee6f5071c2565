//! What a tuning found, as data.

use serde::Serialize;
use std::collections::HashMap;
use thalweg_core::{
    Facts, Judgement, Mechanism, Plan, Profile, Request, Tuning, Unfit,
    profile::{Cell, Load, Ratio},
};

use super::{Clock, bench::Peer, slice::SliceFacts};
use crate::{
    conditions::Conditions,
    contamination::{Mark, marks},
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
    /// Threads that were best for a tree.
    pub jobs: Option<usize>,
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
    pub cp: Result<CpFacts, String>,
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

/// A mechanism that could not take part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unavailable {
    /// Its name.
    pub name: &'static str,
    /// Why.
    pub reason: String,
}

/// The `cp` that took part.
#[derive(Clone, Debug, Serialize)]
pub struct CpFacts {
    /// The command without its operands.
    pub command: String,
    /// What it says of itself.
    pub version: String,
    /// Seconds it takes to copy an empty file. They are part of each of its samples.
    pub startup: f64,
}

impl TuneResult {
    /// Hands what was found to a profile and to the request of the job that follows.
    pub fn teach(&self, profile: &mut Profile, request: &mut Request) {
        profile.merge(self.cells.clone());
        profile.noise = self.noise;
        request.unfit.extend(self.unfit.iter().map(|(name, unfit)| (*name, unfit.clone())));
    }
}

/// What an arm of the log is.
pub(super) enum Subject {
    Mechanism { mechanism: &'static dyn Mechanism, tuning: Tuning },
    Peer,
}

/// A finished measurement, not yet summed up.
pub(super) struct Measured {
    pub log: Log,
    pub subjects: Vec<Subject>,
    /// The number of the arm of ratio 1.
    pub reference: usize,
    /// The number of `cp`.
    pub peer: Option<usize>,
    pub cp: Result<Peer, String>,
    pub slice: SliceFacts,
    pub conditions: Conditions,
    pub unavailable: Vec<Unavailable>,
}

impl Measured {
    /// Sums up. The winner is the planner's own, so that nobody decides twice.
    pub fn result(
        self,
        facts: &Facts,
        request: &Request,
        (clock, random): (Clock, &mut Random),
    ) -> TuneResult {
        let metrics = [Metric::Wall, Metric::Cpu];
        let noise = metrics.map(|metric| noise_floor(&self.log.doubled(metric), random));
        let noise = noise[usize::from(request.prefer == thalweg_core::Prefer::Cpu)];
        let marked = marks(&self.log);
        let arms: Vec<ArmResult> = (0..self.subjects.len())
            .map(|arm| {
                let of_it = marked.iter().filter(|mark| mark.arm == arm && mark.round.is_some());
                let marked = of_it.count();
                ArmResult { marked, ..self.arm(arm, facts, noise, random) }
            })
            .collect();
        let cells = self.cells(&arms, facts);
        let profile = Profile { cells, noise, ..Profile::new() };
        let plan = Plan::make(facts, request, Some(&profile));
        let winner = plan.chosen().filter(|verdict| verdict.evidence.is_some());
        let winner = winner.map(|v| Choice { mechanism: v.mechanism, tuning: v.tuning.clone() });
        let tied = plan.verdicts.iter().filter(|v| v.judgement == Judgement::Tie);
        TuneResult {
            winner,
            ties: tied.map(|verdict| verdict.mechanism).collect(),
            jobs: None,
            comparisons: arms.iter().map(ArmResult::comparisons).sum(),
            arms,
            cells: profile.cells,
            noise,
            unavailable: self.unavailable,
            slice: self.slice,
            cp: self.cp.map(|peer| CpFacts {
                command: peer.cp.command,
                version: peer.cp.version,
                startup: peer.startup,
            }),
            conditions: self.conditions,
            marked,
            log: self.log,
            seconds: clock.spent().as_secs_f64(),
            unfit: request.unfit.clone(),
        }
    }

    fn arm(&self, arm: usize, facts: &Facts, noise: f64, random: &mut Random) -> ArmResult {
        let log = &self.log;
        let (mechanism, tuning, saves_work) = match &self.subjects[arm] {
            Subject::Mechanism { mechanism, tuning } => {
                (Some(mechanism.info().name), tuning.clone(), mechanism.saves_work(facts))
            }
            Subject::Peer => (None, Tuning::default(), false),
        };
        let startup = self.cp.as_ref().map_or(0.0, |peer| peer.startup);
        let mut to = |other: Option<usize>, metric| match other {
            Some(other) if other == arm => Some(Ratio::ONE),
            Some(other) => ratio_of_rounds(&log.paired(arm, other, metric), random),
            None => None,
        };
        let ratio_to_cp = to(self.peer, Metric::Wall);
        let cpu_ratio_to_cp = to(self.peer, Metric::Cpu);
        let ratio_to_read_write = to(Some(self.reference), Metric::Wall);
        let cpu_ratio_to_read_write = to(Some(self.reference), Metric::Cpu);
        let started = |sample: &Sample| {
            // A start can be quicker than the median one; what is left is then hardly measured.
            (sample.wall_seconds() - startup).max(sample.wall_seconds() / 10.0)
        };
        let ratio_to_cp_started = self.peer.filter(|peer| *peer != arm).and_then(|peer| {
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

    /// A cell for every mechanism that was sampled often enough for an interval.
    fn cells(&self, arms: &[ArmResult], facts: &Facts) -> Vec<Cell> {
        let options = [&facts.source, &facts.sink]
            .map(|end| end.fs.as_ref().map(|fs| fs.options.clone()).unwrap_or_default());
        let bytes = self.slice.bytes;
        let cells = arms.iter().enumerate().filter_map(|(number, arm)| {
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

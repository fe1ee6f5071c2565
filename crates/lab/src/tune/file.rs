//! One large file: every mechanism at its default, then the best ones at other tunings.

use std::path::Path;
use thalweg_core::{Flow, Mechanism, Prefer, Tuning, Unfit};

use super::{
    Clock, Job, TuneError, TuneResult, Unavailable,
    arms::{CpArm, MoverArm, Work},
    bench::{Bench, Peer, Trial},
    result::{Measured, Subject},
    slice::Slice,
};
use crate::{
    conditions::Conditions,
    rounds::{Arm, Broken, Cast, Failure, Log, Rules, Schedule},
    sample::Metric,
    stats::{Random, median},
};

/// Rounds of all mechanisms at their defaults before other tunings are looked at.
const FIRST_ROUNDS: usize = 8;
/// The share of the budget they are meant to take.
const FIRST_SHARE: f64 = 0.6;
/// So many of the best mechanisms are tried at other tunings.
const PROMISING: usize = 3;

/// Measures the ways of copying one file. `mechanisms` is a parameter for the tests' sake.
pub(super) fn tune_file(
    job: &Job<'_>,
    source: &Path,
    mechanisms: &[&'static dyn Mechanism],
) -> Result<TuneResult, TuneError> {
    let clock = Clock::start(job.budget);
    let bench = Bench::prepare(job, source)?;
    let conditions = Conditions::now(&[&bench.source, job.destination]);
    let (fit, mut unavailable) = bench.candidates(mechanisms, &job.request);
    let mut trial = bench.try_out(job, &fit)?;
    let peer = bench.find_peer();
    let rounds = FIRST_ROUNDS as f64;
    let bytes = bench.slice_for(&trial, peer.as_ref().ok(), &clock, (rounds, FIRST_SHARE));
    let slice = Slice::make(&bench.source, bytes, &bench.folder, job.stop)?;
    let work = Work {
        source: slice.source.clone(),
        peer_source: slice.peer_source.clone(),
        sink: bench.sink.clone(),
        len: bytes,
        needs: job.needs,
        stop: job.stop,
    };
    let mut run = Run::new(job, clock, &work);
    run.enter_defaults(&mut trial, peer.as_ref().ok())?;
    run.measure()?;
    let (log, subjects, peer_arm, mut random) = run.finish();
    for (name, unfit) in &trial.unfit {
        unavailable.push(Unavailable { name, reason: unfit.reason.clone() });
    }
    unavailable.sort_by_key(|one| mechanisms.iter().position(|m| m.info().name == one.name));
    let mut request = job.request.clone();
    request.unfit.extend(trial.unfit);
    let measured = Measured {
        log,
        subjects,
        reference: 0,
        peer: peer_arm,
        cp: peer,
        slice: slice.facts,
        conditions,
        unavailable,
    };
    Ok(measured.result(&bench.facts, &request, (clock, &mut random)))
}

/// The arms, the log and the stages of one file's measurement.
struct Run<'r> {
    job: &'r Job<'r>,
    clock: Clock,
    work: &'r Work<'r>,
    arms: Vec<Box<dyn Arm + 'r>>,
    /// What each arm is, by its number. The reference is the first.
    subjects: Vec<Subject>,
    /// The number of `cp`.
    peer: Option<usize>,
    log: Log,
    random: Random,
}

impl<'r> Run<'r> {
    fn new(job: &'r Job<'r>, clock: Clock, work: &'r Work<'r>) -> Self {
        let random = Random::new(job.seed);
        let (arms, subjects, log) = (Vec::new(), Vec::new(), Log::default());
        Self { job, clock, work, arms, subjects, peer: None, log, random }
    }

    fn finish(self) -> (Log, Vec<Subject>, Option<usize>, Random) {
        (self.log, self.subjects, self.peer, self.random)
    }

    /// Warms up every mechanism that works, and `cp`; those that fail at the full length, or
    /// deliver other bytes, join the unfit.
    fn enter_defaults(
        &mut self,
        trial: &mut Trial,
        peer: Option<&'r Peer>,
    ) -> Result<(), TuneError> {
        for (mechanism, _) in std::mem::take(&mut trial.works) {
            match self.enter(mechanism, Tuning::default())? {
                Ok(()) => {}
                Err(unfit) if self.arms.is_empty() => {
                    return Err(TuneError::not_tunable(unfit.reason));
                }
                Err(unfit) => {
                    trial.unfit.insert(mechanism.info().name, unfit);
                }
            }
        }
        let Some(peer) = peer else { return Ok(()) };
        let arm = CpArm { cp: &peer.cp, work: self.work };
        if self.admit(Box::new(arm), Subject::Peer)?.is_ok() {
            self.peer = Some(self.arms.len() - 1);
        }
        Ok(())
    }

    fn enter(
        &mut self,
        mechanism: &'static dyn Mechanism,
        tuning: Tuning,
    ) -> Result<Result<(), Unfit>, TuneError> {
        let arm = MoverArm::new(mechanism, tuning.clone(), self.work);
        self.admit(Box::new(arm), Subject::Mechanism { mechanism, tuning })
    }

    /// One sample that does not count, and a look at its bytes.
    fn admit(
        &mut self,
        mut arm: Box<dyn Arm + 'r>,
        subject: Subject,
    ) -> Result<Result<(), Unfit>, TuneError> {
        match arm.sample() {
            Ok(_) => {}
            Err(Failure::Stopped) => return Err(TuneError::Stopped),
            Err(Failure::Unfit(unfit)) => return Ok(Err(unfit)),
        }
        if let Err(unfit) = arm.check() {
            return Ok(Err(unfit));
        }
        if (self.job.stop)() == Flow::Stop {
            return Err(TuneError::Stopped);
        }
        self.log.enter(arm.name());
        self.arms.push(arm);
        self.subjects.push(subject);
        Ok(Ok(()))
    }

    /// All at their defaults; then, if five rounds with them fit, other tunings of the best; else
    /// more of the first.
    fn measure(&mut self) -> Result<(), TuneError> {
        let all: Vec<usize> = (0..self.arms.len()).collect();
        let rules = Rules::default();
        self.rounds(all.clone(), Rules { most_rounds: FIRST_ROUNDS, ..rules })?;
        let defaults = self.arms.len();
        let best = self.promising();
        let mut finalists = vec![0];
        finalists.extend(self.peer);
        finalists.extend(best.first().filter(|arm| **arm != 0));
        for (mechanism, tuning) in self.variants(&best, &finalists) {
            // A tuning that does not work is no loss: its default does.
            let _ = self.enter(mechanism, tuning)?;
        }
        if self.arms.len() == defaults {
            let most_rounds = rules.most_rounds - FIRST_ROUNDS;
            return self.rounds(all, Rules { least_rounds: 0, most_rounds, ..rules });
        }
        finalists.extend(defaults..self.arms.len());
        self.rounds(finalists, rules)
    }

    /// The best mechanisms that copy and have something to tune, best first.
    fn promising(&self) -> Vec<usize> {
        let metric =
            if self.job.request.prefer == Prefer::Cpu { Metric::Cpu } else { Metric::Wall };
        let ratio = |arm| median(&self.log.paired(arm, 0, metric)).unwrap_or(f64::MAX);
        let may_win = |arm: &usize| {
            let Subject::Mechanism { mechanism, .. } = &self.subjects[*arm] else { return false };
            !mechanism.info().knobs.is_empty() && self.log.arms[*arm].dropped.is_none()
        };
        let mut arms: Vec<usize> = (0..self.arms.len()).filter(may_win).collect();
        arms.sort_by(|a, b| ratio(*a).total_cmp(&ratio(*b)));
        arms.truncate(PROMISING);
        arms
    }

    /// Tunings of these arms' mechanisms in which one knob is turned; as many as fit what is left
    /// of the budget, together with the finalists, for the least number of rounds.
    fn variants(
        &self,
        best: &[usize],
        finalists: &[usize],
    ) -> Vec<(&'static dyn Mechanism, Tuning)> {
        let rounds = Rules::default().least_rounds as u32;
        let mut left = self.clock.left().saturating_sub(self.log.round_cost(finalists) * rounds);
        let mut variants = Vec::new();
        for arm in best {
            let Subject::Mechanism { mechanism, .. } = self.subjects[*arm] else { continue };
            // Warming up and checking cost about two samples, being drawn twice about one.
            let cost = self.log.round_cost(&[*arm]) / 2 * (rounds + 3);
            for knob in mechanism.info().knobs {
                for value in &knob.values[1..] {
                    match left.checked_sub(cost) {
                        Some(rest) => left = rest,
                        None => return variants,
                    }
                    variants.push((mechanism, Tuning::of(knob.name, *value)));
                }
            }
        }
        variants
    }

    fn rounds(&mut self, active: Vec<usize>, rules: Rules) -> Result<(), TuneError> {
        let clock = self.clock;
        let mut schedule = Schedule {
            rules,
            clock: &|| clock.spent(),
            deadline: clock.deadline(),
            stop: self.job.stop,
            random: &mut self.random,
        };
        let cast = Cast { active, reference: 0, kept: self.peer.into_iter().collect() };
        match schedule.run(&mut self.arms, cast, &mut self.log) {
            Ok(()) => Ok(()),
            Err(Broken::Stopped) => Err(TuneError::Stopped),
            Err(Broken::Reference(unfit)) => Err(TuneError::not_tunable(unfit.reason)),
        }
    }
}

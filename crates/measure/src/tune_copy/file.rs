//! Tunes the copy of one large file: every mechanism at its default, then the best ones with other tunings.

use std::{cell::RefCell, path::Path};
use thalweg_core::{Mechanism, Prefer, Tuning, Unfit};

use super::{
    TuneClock, TuneError, TuneJob, TuneResult, UnavailableArm,
    bench::{CopyBench, FirstAttempts},
    entrants::Entrants,
    evaluation::{Measured, TuneSubject},
    slice::Slice,
};
use crate::{
    arms::{
        content,
        cp::CpArm,
        knobs::one_knob_turned,
        transfer::{Whole, WholeArm},
    },
    conditions::Conditions,
    sample::SampleMetric,
    schedule::Rules,
    stats::Random,
};

/// Rounds of all mechanisms at their defaults before other tunings are tried.
const FIRST_ROUNDS: usize = 8;
/// The intended fraction of the budget for those rounds.
const FIRST_SHARE: f64 = 0.6;
/// Number of the best mechanisms for which other tunings are tried.
const PROMISING: usize = 3;

/// Measures the methods to copy one file. `mechanisms` is a parameter so that tests can replace it.
pub(super) fn tune_file(
    job: &TuneJob<'_>,
    source: &Path,
    mechanisms: &[&'static dyn Mechanism],
) -> Result<TuneResult, TuneError> {
    let mut clock = TuneClock::start(job.budget);
    let bench = CopyBench::prepare(job, source)?;
    let conditions = Conditions::now(&[&bench.source, job.destination]);
    let (fit, mut unavailable) = bench.candidates(mechanisms, &job.request);
    let mut trial = bench.try_out(job, &fit)?;
    clock.shorten(trial.seconds_for(bench.len));
    let peer = bench.find_peer(job);
    let rounds = FIRST_ROUNDS as f64;
    let bytes = bench.slice_for(&trial, peer.as_ref().ok(), &clock, rounds, FIRST_SHARE);
    let slice = Slice::make(&bench.source, bytes, &bench.folder, job.stop)?;
    let place = bench.whole(job, &slice.source, bytes)?;
    let starts = RefCell::default();
    let checked = || content::same(&bench.sink, &slice.source, bytes).map_err(Unfit::because);
    let entrants = Entrants::new(job, clock, Random::new(job.seed));
    let mut run = FileTuning { entrants, place: &place };
    run.enter_defaults(&mut trial)?;
    let mut without_peer = None;
    if let Ok(cp) = &peer {
        let arm = CpArm {
            cp,
            site: bench.cp_site(job),
            source: &slice.peer_source,
            bytes,
            checked: &checked,
            starts: &starts,
        };
        without_peer = run.entrants.admit(arm, TuneSubject::Peer(cp.command.clone()))?.err();
    }
    run.measure()?;
    let (log, subjects, mut random) = run.entrants.finish();
    for (name, unfit) in trial.unfit.iter().chain(&trial.untried) {
        unavailable.push(UnavailableArm { name, reason: unfit.reason.clone() });
    }
    unavailable.sort_by_key(|one| mechanisms.iter().position(|m| m.info().name == one.name));
    let mut request = job.request.clone();
    request.unfit.extend(trial.unfit);
    let measured = Measured {
        log,
        subjects,
        reference: 0,
        cp: without_peer.map_or_else(|| peer.clone(), |unfit| Err(unfit.reason)),
        starts: starts.take(),
        slice: slice.facts,
        conditions,
        unavailable,
    };
    Ok(measured.result(Some(&bench.facts), &request, clock, &mut random))
}

struct FileTuning<'r, 'j> {
    entrants: Entrants<'r>,
    place: &'r RefCell<Whole<'j>>,
}

impl FileTuning<'_, '_> {
    /// Warms up every mechanism that works. Mechanisms that fail at the full length, or deliver wrong bytes, are
    /// added to `unfit`.
    fn enter_defaults(&mut self, trial: &mut FirstAttempts) -> Result<(), TuneError> {
        for (mechanism, _) in std::mem::take(&mut trial.works) {
            if self.entrants.len() > 0 && self.entrants.clock.is_spent() {
                let unfit = Unfit::because("the time budget ended before this method was measured");
                trial.untried.insert(mechanism.info().name, unfit);
                continue;
            }
            match self.enter(mechanism, Tuning::default())? {
                Ok(()) => {}
                Err(unfit) if self.entrants.len() == 0 => {
                    return Err(TuneError::not_tunable(unfit.reason));
                }
                Err(unfit) => {
                    trial.unfit.insert(mechanism.info().name, unfit);
                }
            }
        }
        Ok(())
    }

    fn enter(
        &mut self,
        mechanism: &'static dyn Mechanism,
        tuning: Tuning,
    ) -> Result<Result<(), Unfit>, TuneError> {
        let arm = WholeArm { place: self.place, mechanism, tuning: tuning.clone() };
        self.entrants.admit(arm, TuneSubject::Mechanism { mechanism, tuning })
    }

    /// Samples all mechanisms at their defaults. Then samples other tunings of the best ones if five rounds with them
    /// fit; otherwise continues with the defaults.
    fn measure(&mut self) -> Result<(), TuneError> {
        let all: Vec<usize> = (0..self.entrants.len()).collect();
        let rules = Rules::default();
        let kept: Vec<usize> = self.entrants.peer().into_iter().collect();
        self.entrants.rounds(
            all.clone(),
            kept.clone(),
            Rules { most_rounds: FIRST_ROUNDS, ..rules },
        )?;
        let defaults = self.entrants.len();
        let best = self.promising();
        let mut finalists = vec![0];
        finalists.extend(self.entrants.peer());
        // A tuning is compared with its mechanism's default, so the default takes part too.
        finalists.extend(best.iter().filter(|arm| **arm != 0));
        for (mechanism, tuning) in self.variants(&best, &finalists) {
            // A tuning that fails can be ignored: its mechanism's default works.
            let _ = self.enter(mechanism, tuning)?;
        }
        if self.entrants.len() == defaults {
            let most_rounds = rules.most_rounds - FIRST_ROUNDS;
            return self.entrants.rounds(
                all,
                kept,
                Rules { least_rounds: 0, most_rounds, ..rules },
            );
        }
        finalists.extend(defaults..self.entrants.len());
        self.entrants.rounds(finalists, kept, rules)
    }

    /// Returns the best mechanisms that copy and have knobs, best first.
    fn promising(&self) -> Vec<usize> {
        let metric = if self.entrants.job.request.prefer == Prefer::Cpu {
            SampleMetric::Cpu
        } else {
            SampleMetric::Wall
        };
        let ratio =
            |arm| self.entrants.experiment.log.median_ratio(arm, 0, &metric).unwrap_or(f64::MAX);
        let may_win = |arm: &usize| {
            let TuneSubject::Mechanism { mechanism, .. } = &self.entrants.subjects[*arm] else {
                return false;
            };
            !mechanism.info().knobs.is_empty()
                && self.entrants.experiment.log.arms[*arm].dropped.is_none()
        };
        let mut arms: Vec<usize> = (0..self.entrants.len()).filter(may_win).collect();
        arms.sort_by(|a, b| ratio(*a).total_cmp(&ratio(*b)));
        arms.truncate(PROMISING);
        arms
    }

    /// Returns tunings of these arms' mechanisms with one knob changed. Their number is limited so that, together
    /// with the finalists, the minimum number of rounds fits into the remaining budget.
    fn variants(
        &self,
        best: &[usize],
        finalists: &[usize],
    ) -> Vec<(&'static dyn Mechanism, Tuning)> {
        let rounds = Rules::default().least_rounds as u32;
        let mut left = self
            .entrants
            .clock
            .left()
            .saturating_sub(self.entrants.experiment.log.round_cost(finalists) * rounds);
        let mut variants = Vec::new();
        for arm in best {
            let TuneSubject::Mechanism { mechanism, .. } = self.entrants.subjects[*arm] else {
                continue;
            };
            // Warm-up and verification cost about as much as two samples. The second sample in some rounds costs about
            // one more.
            let cost = self.entrants.experiment.log.round_cost(&[*arm]) / 2 * (rounds + 3);
            for tuning in one_knob_turned(mechanism.info().knobs) {
                match left.checked_sub(cost) {
                    Some(rest) => left = rest,
                    None => return variants,
                }
                variants.push((mechanism, tuning));
            }
        }
        variants
    }
}

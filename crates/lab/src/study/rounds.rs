//! Runs the arms (compared variants) of one session under one condition: open, warm up, calibrate, interleave, verify.

use std::{collections::BTreeSet, time::Duration};
use thalweg_core::{Cancelled, Unfit, alias::Alias};

use super::{
    messages::{ArmRun, ConditionLog},
    result::{Condition, RoundSample, SessionSamples},
};
use thalweg_measure::{
    contamination::{SampleMark, marks},
    experiment::Experiment,
    log::SampleLog,
    sample::Sample,
    schedule::{Arm, Lineup, SampleFailure, SampledArm, Schedule},
    stats::Random,
};

/// An arm that has its helper processes, but not its buffers yet.
pub struct OpenedArm {
    pub name: String,
    /// The arm, or the reason why it could not be opened.
    pub arm: Result<Box<dyn Arm>, Unfit>,
}

/// The parameters of the rounds, and the number of their session.
#[derive(Clone, Copy, Debug)]
pub struct RoundPace {
    pub session: usize,
    pub rounds: usize,
    /// Intended duration of a sample. `None` if each sample is one operation, and the bytes are not verified.
    pub sample: Option<Duration>,
}

/// The reason why a session ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// An arm delivered wrong bytes.
    Wrong { arm: String, reason: String },
    /// The caller asked to stop, or the parent process no longer reads.
    Cancelled,
}

impl From<Cancelled> for SessionEnd {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

/// Called after each round with the number of finished rounds and the throughput of each arm, in 10^9 bytes per
/// second.
pub type OnRound<'r> = dyn FnMut(usize, Vec<(String, f64)>) -> Result<(), Cancelled> + 'r;

/// Runs the arms under one condition. Every arm is warmed up before any arm is sampled. An arm that fails is dropped
/// with its reason. Wrong bytes end the session.
pub fn perform(
    place: &Condition,
    opened: Vec<OpenedArm>,
    pace: RoundPace,
    random: &mut Random,
    on_round: &mut OnRound<'_>,
) -> Result<ConditionLog, SessionEnd> {
    let mut missing = Vec::new();
    let mut warm = Vec::new();
    for OpenedArm { name, arm } in opened {
        match arm.and_then(|mut arm| arm.warm_up().map(|()| arm)) {
            Ok(arm) => warm.push((name, SampledArm { arm, repeats: 1 })),
            Err(unfit) => missing.push((name, unfit.to_string())),
        }
    }
    let mut experiment = Experiment::default();
    // Arms are calibrated after all of them are warm; otherwise the last arm would have warmer memory than the first.
    for (name, mut arm) in warm {
        if let Some(sample) = pace.sample
            && let Err(failure) = arm.calibrate(sample)
        {
            missing.push((name, failure.unfit()?.to_string()));
            continue;
        }
        experiment.enter(&name, arm);
    }
    let lineup = Lineup::of_equals(experiment.active());
    // One round per call, so that progress can be reported in between.
    for done in 1..=pace.rounds {
        let schedule = &mut Schedule::fixed(1, &|| Ok(()), random);
        experiment
            .run(schedule, lineup.clone())
            .map_err(|_: SampleFailure| SessionEnd::Cancelled)?;
        let log = &experiment.log;
        let round = log.rounds.last().into_iter().flatten();
        let rate = |s: &Sample| s.bytes as f64 / 1e9 / s.wall_seconds();
        let rates = round.map(|e| (log.arms[e.arm].name.clone(), rate(&e.sample))).collect();
        on_round(done, rates)?;
    }
    let Experiment { mut arms, log } = experiment;
    let mut runs = Vec::with_capacity(arms.len());
    let warm: Vec<Option<u64>> =
        arms.iter().map(|one| (!one.arm.is_fresh()).then_some(place.bytes)).collect();
    let marks = marks(&log, &warm);
    for (number, sampled) in arms.iter_mut().enumerate() {
        let mut run = finish(sampled, &log, number, &marks, pace.sample.is_some())?;
        run.taken.session = pace.session;
        if let Some(reason) = &log.arms[number].dropped {
            missing.push((run.name.clone(), reason.clone()));
        }
        if !run.taken.samples.is_empty() {
            runs.push(run);
        }
    }
    Ok(ConditionLog { place: place.clone(), arms: runs, missing, seconds: 0.0 })
}

/// Verifies the output if requested, probes for shared pages, and collects the samples.
fn finish(
    SampledArm { arm, repeats }: &mut SampledArm<'_>,
    log: &SampleLog,
    number: usize,
    marks: &[SampleMark],
    verifies: bool,
) -> Result<ArmRun, SessionEnd> {
    let mut alias = None;
    let unchecked = log.arms[number].dropped.is_some();
    if verifies && !unchecked {
        let wrong = |unfit: Unfit| SessionEnd::Wrong {
            arm: log.arms[number].name.clone(),
            reason: unfit.to_string(),
        };
        arm.check().map_err(wrong)?;
        alias = arm.alias();
    }
    let own: Vec<&SampleMark> = marks.iter().filter(|mark| mark.arm == number).collect();
    let promises = arm.promises();
    let mut words: Vec<String> =
        own.iter().map(|mark| format!("round {}: {}", mark.round + 1, mark.text)).collect();
    let shared = matches!(alias, Some(Ok(Alias::Shared)));
    if shared && promises.is_some_and(|p| p.stable && p.private) {
        words.insert(0, "guarantees a separate copy, but shares pages".to_owned());
    }
    if unchecked {
        words.insert(0, "failed during the rounds: its bytes were not verified".to_owned());
    }
    if !verifies {
        words.insert(0, "operations of minutes: the bytes were not verified".to_owned());
    }
    let doubt = arm.doubt();
    words.extend(doubt.clone());
    let rounds = |of: fn(&SampleMark) -> bool| {
        let rounds = own.iter().filter(|mark| of(mark)).map(|mark| mark.round);
        rounds.collect::<BTreeSet<usize>>().len()
    };
    let (marked, disturbed) = (rounds(|_| true), rounds(|mark| mark.sign.is_of_others()));
    let samples = samples_of(log, number);
    Ok(ArmRun {
        name: log.arms[number].name.clone(),
        promises,
        alias: alias.map(|seen| match seen {
            Ok(Alias::Copied) => "copied".to_owned(),
            Ok(Alias::Shared) => "shared".to_owned(),
            Err(unfit) => unfit.to_string(),
        }),
        marked: if unchecked || doubt.is_some() { samples.len() } else { marked },
        calls_uncounted: arm.calls_uncounted(),
        taken: SessionSamples {
            session: 0,
            repeats: *repeats,
            samples,
            marks: words,
            disturbed,
            unchecked,
        },
    })
}

fn samples_of(log: &SampleLog, arm: usize) -> Vec<RoundSample> {
    let rounds = log.rounds.iter().enumerate();
    let samples = rounds.flat_map(|(round, entries)| {
        let own = entries.iter().filter(move |entry| entry.arm == arm);
        own.map(move |entry| RoundSample { round, sample: entry.sample })
    });
    samples.collect()
}

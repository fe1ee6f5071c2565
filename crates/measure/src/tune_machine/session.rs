//! One session: all mechanisms on one pair, size by size, in a process of its own.

use std::time::{Duration, Instant};
use thalweg_core::Unfit;

use super::{
    contest::Arena,
    job::{ContestJob, SizeLog, SurveyLine, TunedMethod},
    share::{LEAST_ROUNDS, Shares, TimeShare},
};
use crate::{
    StopCheck,
    experiment::Experiment,
    log::SampleLog,
    schedule::{Lineup, Rules, SampleFailure, SampledArm, Schedule},
    stats::Random,
};

/// Measures and reports line by line. If the session is cancelled, the last line is missing.
pub fn run(job: &ContestJob, stop: &StopCheck<'_>, answer: &mut dyn FnMut(SurveyLine)) {
    let session = SurveySession { job, stop, began: Instant::now() };
    match session.run(answer) {
        Ok(()) => answer(SurveyLine::Done),
        Err(SampleFailure::Cancelled) => {}
        Err(SampleFailure::Unfit(unfit)) => answer(SurveyLine::Failed(unfit.reason)),
    }
}

struct SurveySession<'j> {
    job: &'j ContestJob,
    stop: &'j StopCheck<'j>,
    began: Instant,
}

impl SurveySession<'_> {
    fn run(&self, answer: &mut dyn FnMut(SurveyLine)) -> Result<(), SampleFailure> {
        let job = self.job;
        let failed =
            |e: std::io::Error| SampleFailure::Unfit(Unfit::because(format!("{}: {e}", job.ends)));
        let (mut place, mut ways) = job.ends.contest().open(job, self.stop, answer)?;
        let mut random = Random::new(job.seed);
        let mut shares = Shares::new(&job.sizes, job.rounds);
        for (n, size) in job.sizes.iter().copied().enumerate() {
            let left = job.budget.saturating_sub(self.began.elapsed());
            let Some(share) = shares.next(n, ways.len(), left) else {
                let reason = "measuring this size would exceed the budget".to_owned();
                answer(SurveyLine::Skipped { size, reason });
                continue;
            };
            if n > 0 && !place.has_room(size, ways.len()) {
                answer(SurveyLine::Skipped { size, reason: "not enough space".to_owned() });
                continue;
            }
            place.resize(size).map_err(failed)?;
            let done = self.size(place.as_ref(), &mut ways, size, share, &mut random, answer)?;
            shares.learn(n, done);
        }
        Ok(())
    }

    /// Measures all mechanisms at one size: tries, verifies, calibrates and samples them. Returns the duration of one
    /// transfer of the reference.
    fn size(
        &self,
        place: &dyn Arena,
        ways: &mut Vec<TunedMethod>,
        size: u64,
        share: TimeShare,
        random: &mut Random,
        answer: &mut dyn FnMut(SurveyLine),
    ) -> Result<Duration, SampleFailure> {
        let until = self.began.elapsed() + share.allotted;
        let (mut arms, mut took_part, mut memory) = (Vec::new(), Vec::new(), Vec::new());
        ways.retain(|way| {
            if (self.stop)().is_err() {
                return true;
            }
            match place.try_out(way) {
                Ok((arm, held)) => {
                    memory.push(held);
                    arms.push(arm);
                    took_part.push(way.clone());
                    true
                }
                Err(SampleFailure::Cancelled) => true,
                Err(SampleFailure::Unfit(unfit)) => {
                    answer(SurveyLine::Unfit { way: way.clone(), reason: unfit.reason });
                    false
                }
            }
        });
        (self.stop)()?;
        let (true, Some(reference)) =
            (took_part.first().is_some_and(|way| self.is_reference(way)), arms.first_mut())
        else {
            return Err(SampleFailure::Unfit(Unfit::because(
                "the reference method does not work here",
            )));
        };
        let one = place.time_of_one(reference.arm.as_mut())?;
        let transfers = place.fitting((share.sample.as_secs_f64() / one.as_secs_f64()) as u64);
        reference.repeats = transfers as u32;
        arms[1..].iter_mut().for_each(|arm| place.fill(arm, share.sample, transfers));
        // Two rounds always run, even if the trials have used up the time.
        let round = share.sample.max(one) * 2 * (arms.len() as u32 + 1);
        let until = until.max(self.began.elapsed() + round * LEAST_ROUNDS as u32);
        let log = self.rounds(&took_part, arms, until, random)?;
        for (arm, way) in took_part.iter().enumerate().filter(|(arm, _)| log.arms[*arm].failed) {
            let reason = log.arms[arm].dropped.clone().unwrap_or_default();
            answer(SurveyLine::Unfit { way: way.clone(), reason });
            ways.retain(|known| known != way);
        }
        answer(SurveyLine::Size(SizeLog { size, transfers, ways: took_part, memory, log }));
        Ok(one)
    }

    /// Returns `true` if this is the mechanism with which the others are compared.
    fn is_reference(&self, way: &TunedMethod) -> bool {
        way.tuning.is_default() && self.job.ends.contest().is_reference(&way.name)
    }

    fn rounds(
        &self,
        ways: &[TunedMethod],
        arms: Vec<SampledArm<'_>>,
        until: Duration,
        random: &mut Random,
    ) -> Result<SampleLog, SampleFailure> {
        let mut experiment = Experiment::default();
        for (way, arm) in ways.iter().zip(arms) {
            experiment.enter(&way.to_string(), arm);
        }
        let lineup = Lineup::of(experiment.active());
        let rounds = self.job.rounds.max(LEAST_ROUNDS);
        let rules = Rules { least_rounds: LEAST_ROUNDS, most_rounds: rounds, ..Rules::default() };
        let mut schedule = Schedule {
            rules,
            clock: &|| self.began.elapsed(),
            deadline: until,
            stop: self.stop,
            random,
        };
        experiment.run(&mut schedule, lineup)?;
        Ok(experiment.log)
    }
}

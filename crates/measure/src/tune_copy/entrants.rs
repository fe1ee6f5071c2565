//! The arms (compared variants) of a tuning: warms them up, verifies and samples them.

use thalweg_core::Unfit;

use super::{TuneClock, TuneError, TuneJob, evaluation::TuneSubject};
use crate::{
    experiment::Experiment,
    log::SampleLog,
    schedule::{Arm, Lineup, Rules, SampledArm, Schedule},
    stats::Random,
};

/// The arms of a tuning, the method that each arm measures, and all samples.
pub(super) struct Entrants<'r> {
    pub job: &'r TuneJob<'r>,
    pub clock: TuneClock,
    pub random: Random,
    pub experiment: Experiment<'r>,
    /// The subject of each arm, by index. The first one is the reference.
    pub subjects: Vec<TuneSubject>,
}

impl<'r> Entrants<'r> {
    pub fn new(job: &'r TuneJob<'r>, clock: TuneClock, random: Random) -> Self {
        Self { job, clock, random, experiment: Experiment::default(), subjects: Vec::new() }
    }

    /// Returns the index of the next arm.
    pub fn len(&self) -> usize {
        self.subjects.len()
    }

    /// Returns the index of `cp`, if it takes part.
    pub fn peer(&self) -> Option<usize> {
        self.subjects.iter().position(|subject| matches!(subject, TuneSubject::Peer(_)))
    }

    /// Takes one sample that does not count and verifies its bytes. If both succeed, the arm takes part.
    pub fn admit(
        &mut self,
        mut arm: impl Arm + 'r,
        subject: TuneSubject,
    ) -> Result<Result<(), Unfit>, TuneError> {
        if let Err(failure) = arm.sample(1) {
            return Ok(Err(failure.unfit()?));
        }
        if let Err(unfit) = arm.check() {
            return Ok(Err(unfit));
        }
        (self.job.stop)()?;
        self.experiment.enter(&subject.name(), SampledArm::once(arm));
        self.subjects.push(subject);
        Ok(Ok(()))
    }

    /// Runs rounds of these arms within the budget. The reference and the arms in `kept` are never dropped.
    pub fn rounds(
        &mut self,
        active: Vec<usize>,
        kept: Vec<usize>,
        rules: Rules,
    ) -> Result<(), TuneError> {
        let clock = self.clock;
        let mut schedule = Schedule {
            rules: Rules { enough: clock.enough(), ..rules },
            clock: &|| clock.spent(),
            deadline: clock.deadline(),
            stop: self.job.stop,
            random: &mut self.random,
        };
        let lineup = Lineup { active, reference: 0, kept };
        let ran = self.experiment.run(&mut schedule, lineup);
        ran.or_else(|failure| Err(TuneError::not_tunable(failure.unfit()?.reason)))
    }

    /// Drops the arms and their files, and returns the results.
    pub fn finish(self) -> (SampleLog, Vec<TuneSubject>, Random) {
        (self.experiment.log, self.subjects, self.random)
    }
}

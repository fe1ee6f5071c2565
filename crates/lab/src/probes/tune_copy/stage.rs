//! Where a tuning's arms are warmed up, checked and sampled.

use thalweg_core::Unfit;

use super::{Clock, Job, TuneError, sum::Subject};
use crate::measure::{
    log::Log,
    schedule::{Arm, Failure, Lineup, Rules, Sampled, Schedule},
    stats::Random,
};

/// The arms that take part, what they are, and all samples.
pub(super) struct Stage<'r> {
    pub job: &'r Job<'r>,
    pub clock: Clock,
    pub random: Random,
    pub log: Log,
    /// What each arm is, by its number. The reference is the first.
    pub subjects: Vec<Subject>,
    arms: Vec<Sampled<'r>>,
}

impl<'r> Stage<'r> {
    pub fn new(job: &'r Job<'r>, clock: Clock, random: Random) -> Self {
        let (arms, subjects, log) = (Vec::new(), Vec::new(), Log::default());
        Self { job, clock, random, log, subjects, arms }
    }

    /// The number of the next arm.
    pub fn len(&self) -> usize {
        self.arms.len()
    }

    /// The number of `cp`, if it takes part.
    pub fn peer(&self) -> Option<usize> {
        self.subjects.iter().position(|subject| matches!(subject, Subject::Peer(_)))
    }

    /// One sample that does not count, and a look at its bytes: an arm that passes takes part.
    pub fn admit(
        &mut self,
        mut arm: impl Arm + 'r,
        subject: Subject,
    ) -> Result<Result<(), Unfit>, TuneError> {
        match arm.sample(1) {
            Ok(_) => {}
            Err(Failure::Cancelled) => return Err(TuneError::Cancelled),
            Err(Failure::Unfit(unfit)) => return Ok(Err(unfit)),
        }
        if let Err(unfit) = arm.check() {
            return Ok(Err(unfit));
        }
        (self.job.stop)()?;
        self.log.enter(&subject.name());
        self.arms.push(Sampled::once(arm));
        self.subjects.push(subject);
        Ok(Ok(()))
    }

    /// Rounds of these arms, as far as the budget goes. The reference and those of `kept` are never
    /// left out.
    pub fn rounds(
        &mut self,
        active: Vec<usize>,
        kept: Vec<usize>,
        rules: Rules,
    ) -> Result<(), TuneError> {
        let clock = self.clock;
        let mut schedule = Schedule {
            rules,
            clock: &|| clock.spent(),
            deadline: clock.deadline(),
            stop: self.job.stop,
            random: &mut self.random,
        };
        let cast = Lineup { active, reference: 0, kept };
        let ran = schedule.run(&mut self.arms, cast, &mut self.log);
        ran.or_else(|failure| Err(TuneError::not_tunable(failure.unfit()?.reason)))
    }

    /// Lets go of the arms, and of what they work on.
    pub fn finish(self) -> (Log, Vec<Subject>, Random) {
        (self.log, self.subjects, self.random)
    }
}

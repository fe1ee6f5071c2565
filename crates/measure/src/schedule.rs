//! Interleaved rounds. Each runs all arms once in random order, and one of them a second time.
//!
//! The schedule uses arms only through [`Arm`] and gets its clock from the caller, so that tests can use simulated
//! arms.

use std::{
    sync::LazyLock,
    time::{Duration, Instant},
};
use thalweg_core::{Cancelled, Guarantees, Unfit, alias::Alias};

use crate::{
    log::{SampleEntry, SampleLog},
    sample::Sample,
    stats::Random,
};

/// Something that is sampled: an operation that can be repeated any number of times. Set-up is never part of a
/// sample.
pub trait Arm {
    /// Returns the guarantees of the arm; `None` for a baseline.
    fn promises(&self) -> Option<Guarantees> {
        None
    }

    /// Returns `true` if the arm uses fresh memory on purpose, so that page faults are part of its cost.
    fn is_fresh(&self) -> bool {
        false
    }

    /// Allocates and touches all memory, so that the first sample is like the others.
    fn warm_up(&mut self) -> Result<(), Unfit> {
        Ok(())
    }

    /// Performs the operation `repeats` times and returns the cost.
    fn sample(&mut self, repeats: u32) -> Result<Sample, SampleFailure>;

    /// Returns the reason why counting the system calls failed.
    fn calls_uncounted(&self) -> Option<String> {
        None
    }

    /// Returns a reservation about all samples of the arm, even if each is correct.
    fn doubt(&self) -> Option<String> {
        None
    }

    /// Verifies the bytes that an operation delivered. The operation is the last one of the samples, or an additional
    /// one.
    fn check(&mut self) -> Result<(), Unfit> {
        Ok(())
    }

    /// Returns whether a later change of the source shows in the destination; `None` if the arm has no source that
    /// could change.
    fn alias(&mut self) -> Option<Result<Alias, Unfit>> {
        None
    }
}

/// An arm that takes part in rounds.
pub struct SampledArm<'a> {
    pub arm: Box<dyn Arm + 'a>,
    /// Operations per sample.
    pub repeats: u32,
}

/// Maximum number of steps of a calibration. Each step at least doubles the number of operations, so after all steps
/// the number has reached the maximum of `u32`.
const MOST_DOUBLINGS: usize = 32;

impl<'a> SampledArm<'a> {
    /// Creates an arm with one operation per sample.
    pub fn once(arm: impl Arm + 'a) -> Self {
        Self { arm: Box::new(arm), repeats: 1 }
    }

    /// Sets `repeats` to the number of operations that take as long as `sample`, at least one.
    pub fn calibrate(&mut self, sample: Duration) -> Result<(), SampleFailure> {
        for _ in 0..MOST_DOUBLINGS {
            let took = self.arm.sample(self.repeats)?.wall_seconds();
            let wanted = sample.as_secs_f64() / took;
            let scaled = (f64::from(self.repeats) * wanted).round().clamp(1.0, f64::from(u32::MAX));
            if wanted <= 2.0 {
                self.repeats = scaled as u32;
                return Ok(());
            }
            // The first operation is cold and predicts little, so the number grows at most eightfold per step.
            self.repeats = scaled.min(f64::from(self.repeats) * 8.0) as u32;
        }
        Ok(())
    }
}

/// The reason why an arm gave no sample. Rounds return it if the reference arm fails, because then nothing can be
/// compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SampleFailure {
    /// The caller asked to stop.
    Cancelled,
    /// The arm cannot do this work, for the given reason.
    Unfit(Unfit),
}

impl SampleFailure {
    /// Returns the reason, or `Cancelled` if the caller asked to stop.
    pub fn unfit(self) -> Result<Unfit, Cancelled> {
        match self {
            Self::Cancelled => Err(Cancelled),
            Self::Unfit(unfit) => Ok(unfit),
        }
    }
}

impl From<Cancelled> for SampleFailure {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

impl From<Unfit> for SampleFailure {
    fn from(unfit: Unfit) -> Self {
        Self::Unfit(unfit)
    }
}

impl From<SampleFailure> for Unfit {
    fn from(failure: SampleFailure) -> Self {
        match failure {
            SampleFailure::Cancelled => Self::because("stopped"),
            SampleFailure::Unfit(unfit) => unfit,
        }
    }
}

impl From<String> for SampleFailure {
    fn from(reason: String) -> Self {
        Self::Unfit(Unfit::because(reason))
    }
}

/// The rules of a schedule, fixed before the first sample.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Number of rounds that the schedule tries to reach by dropping slow arms.
    pub least_rounds: usize,
    /// Maximum number of rounds; more would not improve the result.
    pub most_rounds: usize,
    /// An arm this many times slower than the reference is dropped.
    pub too_slow: f64,
    /// Number of rounds before an arm may be dropped.
    pub grace_rounds: usize,
    /// After `least_rounds`, no round starts after this time on the schedule's clock.
    pub enough: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            least_rounds: 5,
            most_rounds: 40,
            too_slow: 4.0,
            grace_rounds: 2,
            enough: Duration::MAX,
        }
    }
}

/// A schedule of rounds: its rules, the clock, the time limit, and the random order.
pub struct Schedule<'s> {
    pub rules: Rules,
    /// Returns the time since a fixed start.
    pub clock: &'s dyn Fn() -> Duration,
    /// No further sample starts after this time on `clock`.
    pub deadline: Duration,
    /// Called before every sample.
    pub stop: &'s dyn Fn() -> Result<(), Cancelled>,
    pub random: &'s mut Random,
}

/// The arms of one run of rounds, by their index in the list of arms and in the log.
#[derive(Clone, Debug)]
pub struct Lineup {
    /// The arms that take part.
    pub active: Vec<usize>,
    /// The arm with which the others are compared; it is never dropped.
    pub reference: usize,
    /// Other arms that are never dropped.
    pub kept: Vec<usize>,
}

impl Lineup {
    /// Creates a lineup in which the arm with index 0 is the reference.
    pub fn of(active: Vec<usize>) -> Self {
        Self { active, reference: 0, kept: Vec::new() }
    }

    /// Creates a lineup without a reference: an arm that fails is dropped, and the others continue.
    pub fn of_equals(active: Vec<usize>) -> Self {
        Self { active, reference: usize::MAX, kept: Vec::new() }
    }
}

/// Start of the clock of schedules without a deadline. The clock measures the cost of samples.
static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

impl<'s> Schedule<'s> {
    /// Returns a schedule with a fixed number of rounds, without deadline and without dropping slow arms.
    pub fn fixed(
        rounds: usize,
        stop: &'s dyn Fn() -> Result<(), Cancelled>,
        random: &'s mut Random,
    ) -> Self {
        let rules = Rules {
            least_rounds: rounds,
            most_rounds: rounds,
            too_slow: f64::MAX,
            grace_rounds: usize::MAX,
            enough: Duration::MAX,
        };
        Self { rules, clock: &|| BEGAN.elapsed(), deadline: Duration::MAX, stop, random }
    }

    /// Runs rounds until the budget or the rules end them. The log contains every sample, and for every dropped arm
    /// the reason.
    pub fn run(
        &mut self,
        arms: &mut [SampledArm<'_>],
        mut lineup: Lineup,
        log: &mut SampleLog,
    ) -> Result<(), SampleFailure> {
        let first = log.rounds.len();
        loop {
            lineup.active.retain(|arm| log.arms[*arm].dropped.is_none());
            let done = log.rounds.len() - first;
            if lineup.active.is_empty() {
                return Ok(());
            }
            if done >= self.rules.most_rounds || self.is_over(&lineup, log, done) {
                return Ok(());
            }
            let order = order(&lineup.active, self.random);
            log.rounds.push(Vec::with_capacity(order.len()));
            for arm in order {
                (self.stop)()?;
                if (self.clock)() >= self.deadline {
                    return Ok(());
                }
                self.take(arms, arm, &lineup, log)?;
            }
            if log.rounds.len() - first == self.rules.grace_rounds {
                self.leave_out_slow(&lineup, log);
            }
        }
    }

    fn take(
        &mut self,
        arms: &mut [SampledArm<'_>],
        arm: usize,
        lineup: &Lineup,
        log: &mut SampleLog,
    ) -> Result<(), SampleFailure> {
        if log.arms[arm].dropped.is_some() {
            return Ok(());
        }
        let began = (self.clock)();
        let SampledArm { arm: sampled, repeats } = &mut arms[arm];
        match sampled.sample(*repeats) {
            Ok(sample) => {
                log.add(SampleEntry { arm, sample, cost: (self.clock)().saturating_sub(began) });
            }
            Err(failure) if arm == lineup.reference => return Err(failure),
            Err(failure) => {
                let unfit = failure.unfit()?;
                log.arms[arm].dropped = Some(format!("failed during the measurement: {unfit}"));
                log.arms[arm].failed = true;
            }
        }
        Ok(())
    }

    /// Returns `true` if another round would exceed the budget or is not needed. The first rounds always start.
    fn is_over(&self, lineup: &Lineup, log: &SampleLog, done: usize) -> bool {
        let now = (self.clock)();
        let left = self.deadline.saturating_sub(now);
        let no_more = || now >= self.rules.enough || log.round_cost(&lineup.active) > left;
        left.is_zero() || (done >= self.rules.least_rounds && no_more())
    }

    /// After the grace rounds, drops arms that are much slower than the reference. Then drops the most expensive arms
    /// until the minimum number of rounds fits into the remaining budget.
    fn leave_out_slow(&self, lineup: &Lineup, log: &mut SampleLog) {
        let may_go: Vec<usize> = lineup
            .active
            .iter()
            .copied()
            .filter(|arm| *arm != lineup.reference && !lineup.kept.contains(arm))
            .filter(|arm| log.arms[*arm].dropped.is_none())
            .collect();
        let (limit, rounds) = (self.rules.too_slow, self.rules.grace_rounds);
        for arm in &may_go {
            let by = log.times_slower(*arm, lineup.reference).unwrap_or(1.0);
            if by > limit {
                let reason = format!(
                    "dropped after {rounds} rounds: at least {by:.1} times the time of {} (limit {limit:.0})",
                    log.arms[lineup.reference].name
                );
                log.arms[*arm].dropped = Some(reason);
            }
        }
        let wanted = self.rules.least_rounds.saturating_sub(rounds) as u32;
        loop {
            let staying = lineup.active.iter().filter(|arm| log.arms[**arm].dropped.is_none());
            let round: Duration = staying.map(|arm| log.least_cost(*arm)).sum();
            if round * wanted <= self.deadline.saturating_sub((self.clock)()) {
                return;
            }
            let dearest = may_go
                .iter()
                .filter(|arm| log.arms[**arm].dropped.is_none())
                .max_by_key(|arm| log.least_cost(**arm));
            let Some(dearest) = dearest else { return };
            let least = self.rules.least_rounds;
            log.arms[*dearest].dropped = Some(format!(
                "dropped after {rounds} rounds: the slowest remaining method; {least} rounds with it would exceed the budget"
            ));
        }
    }
}

/// Returns the order of a round: all arms, one of them (chosen at random) twice.
pub fn order(active: &[usize], random: &mut Random) -> Vec<usize> {
    let mut order = active.to_vec();
    order.push(active[random.below(active.len())]);
    random.shuffle(&mut order);
    order
}

#[cfg(test)]
mod tests;

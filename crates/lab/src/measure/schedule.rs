//! Interleaved rounds: each a random permutation of all arms, one of them twice.
//!
//! The schedule knows arms only through [`Arm`], and time only through a clock it is given, so that
//! simulated arms can test it.

use std::{
    sync::LazyLock,
    time::{Duration, Instant},
};
use thalweg_core::{Cancelled, Guarantees, Unfit, alias::Alias};

use crate::measure::{
    log::{Entry, Log},
    sample::Sample,
    stats::Random,
};

/// Something that is sampled: one operation, as often as one likes. Set-up is never part of a sample.
pub trait Arm {
    /// What it promises; `None` where the question makes no sense.
    fn promises(&self) -> Option<Guarantees> {
        None
    }

    /// Whether it touches fresh memory on purpose, so that faults are part of it.
    fn is_fresh(&self) -> bool {
        false
    }

    /// Allocates and touches everything, so that the first sample is like the others.
    fn warm_up(&mut self) -> Result<(), Unfit> {
        Ok(())
    }

    /// Does the operation `repeats` times and says what that took.
    fn sample(&mut self, repeats: u32) -> Result<Sample, Failure>;

    /// Why the calls of its samples were not counted, though it was tried.
    fn calls_uncounted(&self) -> Option<String> {
        None
    }

    /// What speaks against all of its samples, though none of them is wrong.
    fn doubt(&self) -> Option<String> {
        None
    }

    /// Looks at the bytes that an operation delivered: those of the last sample, or of one more.
    fn check(&mut self) -> Result<(), Unfit> {
        Ok(())
    }

    /// Whether a change of the source after the operation shows in the sink; `None` where the
    /// question makes no sense.
    fn alias(&mut self) -> Option<Result<Alias, Unfit>> {
        None
    }
}

/// An arm in the rounds.
pub struct Sampled<'a> {
    pub arm: Box<dyn Arm + 'a>,
    /// Operations in each of its samples.
    pub repeats: u32,
}

/// Doublings, at most: beyond it a sample is short for another reason than too few operations.
const MOST_DOUBLINGS: usize = 32;

impl<'a> Sampled<'a> {
    /// One operation in each sample.
    pub fn once(arm: impl Arm + 'a) -> Self {
        Self { arm: Box::new(arm), repeats: 1 }
    }

    /// Finds how many operations fill a sample; one at least.
    pub fn calibrate(&mut self, sample: Duration) -> Result<(), Failure> {
        for _ in 0..MOST_DOUBLINGS {
            let took = self.arm.sample(self.repeats)?.wall_seconds();
            let wanted = sample.as_secs_f64() / took;
            let scaled = (f64::from(self.repeats) * wanted).round().clamp(1.0, f64::from(u32::MAX));
            if wanted <= 2.0 {
                self.repeats = scaled as u32;
                return Ok(());
            }
            // A first, cold operation says little of the next ones: no faster than eightfold.
            self.repeats = scaled.min(f64::from(self.repeats) * 8.0) as u32;
        }
        Ok(())
    }
}

/// Why an arm gave no sample; of rounds, why nothing can be compared: their reference gave none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The caller asked to stop.
    Cancelled,
    /// The arm cannot do this work, and why.
    Unfit(Unfit),
}

impl Failure {
    /// Why the arm cannot do it, unless the caller asked to stop.
    pub fn unfit(self) -> Result<Unfit, Cancelled> {
        match self {
            Self::Cancelled => Err(Cancelled),
            Self::Unfit(unfit) => Ok(unfit),
        }
    }
}

impl From<Cancelled> for Failure {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

impl From<Unfit> for Failure {
    fn from(unfit: Unfit) -> Self {
        Self::Unfit(unfit)
    }
}

impl From<Failure> for Unfit {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Cancelled => Self::because("stopped"),
            Failure::Unfit(unfit) => unfit,
        }
    }
}

impl From<String> for Failure {
    fn from(reason: String) -> Self {
        Self::Unfit(Unfit::because(reason))
    }
}

/// The rules of a schedule, fixed before the first sample.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Rounds that are worth leaving slow arms out for.
    pub least_rounds: usize,
    /// Rounds after which there is nothing more to learn.
    pub most_rounds: usize,
    /// An arm this many times slower than the reference is not sampled further.
    pub too_slow: f64,
    /// Rounds before an arm may be left out.
    pub grace_rounds: usize,
    /// When, by the clock of the schedule, no round is begun any more once the least are done.
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

/// What a schedule runs on.
pub struct Schedule<'s> {
    pub rules: Rules,
    /// Time since some beginning.
    pub clock: &'s dyn Fn() -> Duration,
    /// When, by that clock, no further sample is begun.
    pub deadline: Duration,
    /// Asked before every sample.
    pub stop: &'s dyn Fn() -> Result<(), Cancelled>,
    pub random: &'s mut Random,
}

/// The arms of one run of rounds, by their places in the list of arms and in the log.
#[derive(Clone, Debug)]
pub struct Lineup {
    /// Those that take part.
    pub active: Vec<usize>,
    /// The arm others are compared with; it is never left out.
    pub reference: usize,
    /// Others that are never left out.
    pub kept: Vec<usize>,
}

impl Lineup {
    /// Arms that are compared with the first of all.
    pub fn of(active: Vec<usize>) -> Self {
        Self { active, reference: 0, kept: Vec::new() }
    }

    /// Arms of which none is the reference: one that fails leaves, and the others go on.
    pub fn of_equals(active: Vec<usize>) -> Self {
        Self { active, reference: usize::MAX, kept: Vec::new() }
    }
}

/// By which rounds without a deadline note what their samples cost.
static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

impl<'s> Schedule<'s> {
    /// So many rounds of everything, however long they take and whatever they show: that an arm is
    /// slow is the answer.
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

    /// Runs rounds until the budget or the rules end them. Everything sampled is in the log, and
    /// every arm left out says why there.
    pub fn run(
        &mut self,
        arms: &mut [Sampled<'_>],
        mut lineup: Lineup,
        log: &mut Log,
    ) -> Result<(), Failure> {
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
        arms: &mut [Sampled<'_>],
        arm: usize,
        lineup: &Lineup,
        log: &mut Log,
    ) -> Result<(), Failure> {
        if log.arms[arm].dropped.is_some() {
            return Ok(());
        }
        let began = (self.clock)();
        let Sampled { arm: sampled, repeats } = &mut arms[arm];
        match sampled.sample(*repeats) {
            Ok(sample) => {
                log.add(Entry { arm, sample, cost: (self.clock)().saturating_sub(began) });
            }
            Err(failure) if arm == lineup.reference => return Err(failure),
            Err(failure) => {
                let unfit = failure.unfit()?;
                log.arms[arm].dropped = Some(format!("failed under way: {unfit}"));
                log.arms[arm].failed = true;
            }
        }
        Ok(())
    }

    /// Whether another round would break the budget, or is not wanted. The first rounds are begun
    /// regardless.
    fn is_over(&self, lineup: &Lineup, log: &Log, done: usize) -> bool {
        let now = (self.clock)();
        let left = self.deadline.saturating_sub(now);
        let no_more = || now >= self.rules.enough || log.round_cost(&lineup.active) > left;
        left.is_zero() || (done >= self.rules.least_rounds && no_more())
    }

    /// After the rounds of grace: leaves out arms much slower than the reference, then the dearest
    /// ones until the least number of rounds fits into what is left of the budget.
    fn leave_out_slow(&self, lineup: &Lineup, log: &mut Log) {
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
                    "at best {by:.1} times the time of {} in {rounds} rounds: beyond {limit:.0} times it is not sampled further",
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
                "the dearest after {rounds} rounds: with it {least} rounds would not fit the budget"
            ));
        }
    }
}

/// The order of a round: all arms, one drawn by lot twice.
pub fn order(active: &[usize], random: &mut Random) -> Vec<usize> {
    let mut order = active.to_vec();
    order.push(active[random.below(active.len())]);
    random.shuffle(&mut order);
    order
}

#[cfg(test)]
mod tests;

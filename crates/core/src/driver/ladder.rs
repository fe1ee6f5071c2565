//! The mechanisms of one transfer, in the order in which they are tried. The last resort is the last of them.

use super::{
    StepDown,
    contest::{ContestResult, MechanismContest},
    cost::StepCost,
};
use crate::{
    Blocks, Error, Info, Mechanism, Plan, Role, Tuning,
    error::symbol,
    mechanisms::{LAST_RESORT, by_name},
};

type LadderStep = (&'static dyn Mechanism, Tuning);

/// The position of a transfer among the mechanisms of its plan.
pub(super) struct Ladder {
    steps: Vec<LadderStep>,
    at: usize,
    // Selects the mechanism while mechanisms take turns. It has an effect once the ladder has reached one of them.
    contest: Option<MechanismContest>,
    takes_turns: bool,
}

impl Ladder {
    /// Creates the ladder of a plan. Mechanisms take turns only if both endpoints are addressed by offset, because any
    /// of them must be able to continue where another stopped.
    pub fn new(plan: &Plan, is_addressed: bool) -> Self {
        let mut steps = plan.ladder();
        if steps.last().is_none_or(|step| name(step) != LAST_RESORT.info().name) {
            steps.push((LAST_RESORT, Tuning::default()));
        }
        let turns = plan.turns.as_ref().filter(|_| is_addressed);
        for among in turns.iter().flat_map(|turns| &turns.among).rev() {
            if let Some(mechanism) = by_name(among)
                && !steps.iter().any(|step| name(step) == *among)
            {
                match turns.and_then(|turns| turns.promise.as_ref()) {
                    // The plan ranks this mechanism below the last resort, so it runs only in its turn.
                    Some(promise) => steps.push((mechanism, promise.tuning(among))),
                    None => steps.insert(0, (mechanism, Tuning::default())),
                }
            }
        }
        let contest = turns.map(MechanismContest::between);
        let mut ladder = Self { steps, at: 0, contest, takes_turns: false };
        ladder.take_turn();
        ladder
    }

    pub fn step(&self) -> (&'static dyn Mechanism, &Tuning) {
        let (mechanism, tuning) = &self.steps[self.at];
        (*mechanism, tuning)
    }

    /// Removes the mechanisms that wait inside a step. Returns a record for each removed mechanism that the ladder
    /// would have tried first.
    pub fn never_sleep(&mut self) -> Vec<StepDown> {
        let waits = |step: &LadderStep| step.0.info().nature.waits;
        if let Some(contest) = &mut self.contest {
            let sleepers = self.steps.iter().filter(|step| waits(step).is_some());
            sleepers.for_each(|step| contest.left(name(step)));
        }
        // The last resort never waits, so the search always finds a step.
        let first = self.steps.iter().position(|step| waits(step).is_none()).unwrap_or(0);
        let to = name(&self.steps[first]);
        let told = self.steps.drain(..first).map(|step| {
            let reason = waits(&step).unwrap_or_default().to_owned();
            StepDown { from: name(&step), to, at: 0, call: "", errno: "", reason }
        });
        let told = told.collect();
        self.steps.retain(|step| waits(step).is_none());
        self.at = 0;
        self.take_turn();
        told
    }

    /// Stops comparing the first mechanism's rate with the profile's.
    pub fn trust(&mut self) {
        if let Some(contest) = &mut self.contest {
            contest.trust();
        }
    }

    /// Returns the contest as soon as the ladder has reached a mechanism that takes part in the contest.
    fn contest(&mut self) -> Option<&mut MechanismContest> {
        let here = name(&self.steps[self.at]);
        let contest = self.contest.as_mut()?;
        self.takes_turns |= contest.has(here);
        self.takes_turns.then_some(contest)
    }

    fn last(&self) -> usize {
        let is_last = |step| name(step) == LAST_RESORT.info().name;
        self.steps.iter().rposition(is_last).unwrap_or(0)
    }

    /// Moves to the mechanism that has the turn. Returns `true` if this changes the current mechanism.
    fn take_turn(&mut self) -> bool {
        let Some(turn) = self.contest().and_then(|contest| contest.turn()) else { return false };
        let before = self.at;
        self.at = self.steps.iter().position(|step| name(step) == turn).unwrap_or(before);
        self.at != before
    }

    /// Returns `true` if the contest needs the cost of each step.
    pub fn wants_costs(&mut self) -> bool {
        self.contest().is_some_and(|contest| contest.turn().is_some())
    }

    /// Returns `true` while mechanisms are compared.
    pub fn is_comparing(&mut self) -> bool {
        self.contest().is_some_and(|contest| contest.is_comparing())
    }

    /// Makes the contest forget the usual rate of the current mechanism, because read-ahead changes the rate.
    pub fn forget_rate(&mut self) {
        if let Some(contest) = self.contest() {
            contest.forget_rate();
        }
    }

    /// Returns `true` if the current mechanism reads the source through the page cache of this machine. A mechanism
    /// that may clone, or copy on a server, does not always read the file here.
    pub fn reads_page_cache(&self) -> bool {
        let Info { role, nature, .. } = self.step().0.info();
        *role == Role::Mover && nature.blocks == Blocks::Own
    }

    /// Returns the largest number of bytes that the next step may move.
    pub fn most(&mut self) -> u64 {
        self.contest().map_or(u64::MAX, |contest| contest.most())
    }

    /// Records the bytes that a step moved. Returns `true` if another mechanism has the next turn.
    pub fn moved(&mut self, bytes: u64, cost: StepCost) -> bool {
        if let Some(contest) = self.contest() {
            contest.moved(bytes, cost);
        }
        self.take_turn()
    }

    /// Returns the results of all comparisons.
    pub fn looks(&mut self) -> Vec<ContestResult> {
        self.contest.take().map_or(Vec::new(), MechanismContest::into_looks)
    }

    /// Falls back to another mechanism, `at` bytes into the transfer; `None` if no mechanism is left.
    ///
    /// If the kernel refused the call, the next mechanism of the ladder follows. The refused one is not tried again.
    /// After any other errno, the last resort follows at once. Its plain read and write of the same range either work,
    /// or report the true errno and the true side.
    pub fn step_down(&mut self, error: &Error, at: u64) -> Option<StepDown> {
        let last = self.last();
        if self.at == last || error.mechanism == LAST_RESORT.info().name {
            return None;
        }
        if error.is_refusal() {
            let refused = self.steps.remove(self.at);
            if let Some(contest) = &mut self.contest {
                contest.left(name(&refused));
            }
            self.at = self.at.min(self.last());
        } else {
            self.at = last;
            if let Some(contest) = &mut self.contest {
                contest.end();
            }
        }
        self.take_turn();
        Some(StepDown {
            from: error.mechanism,
            to: name(&self.steps[self.at]),
            at,
            call: error.call,
            errno: symbol(error.errno),
            reason: error.errno_name(),
        })
    }
}

fn name(step: &LadderStep) -> &'static str {
    step.0.info().name
}

//! Finds the mechanism that moves the bytes of this transfer fastest: the candidates take turns on its first pieces,
//! and the best continues (docs/decisions/013).
//!
//! The state machine receives byte counts and costs, and returns the mechanism to run next. It reads no clock and makes
//! no system calls, so that tests can run it in simulated worlds.

use serde::Serialize;
use std::time::Duration;

use super::cost::StepCost;
use crate::{
    MECHANISMS, Prefer,
    mechanisms::LAST_RESORT,
    plan::Turns,
    profile::{Cell, Evidence, LEAST_NOISE, Ratio},
    select::{Candidate, Prior, rank},
};

/// The result of one comparison of mechanisms during a transfer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ContestResult {
    /// Bytes in the sink at the end of the comparison.
    pub at: u64,
    /// `true` if the compared pieces were read from a disk, `false` if they came from the page cache.
    pub from_disk: bool,
    /// The mechanisms that were compared, in the order of their turns.
    pub tried: Vec<ContestTime>,
    /// The mechanism that moves the rest of the bytes.
    pub chosen: &'static str,
    /// Cells (measurements) that a profile can add ([`Profile::learn`](crate::Profile::learn)).
    #[serde(skip)]
    pub seen: Vec<Cell>,
    /// A cell with the endpoints and the size of this comparison. It is set if an earlier copy contradicted the survey
    /// and this comparison confirms the survey. [`Profile::forget`](crate::Profile::forget) then removes the cells of
    /// the earlier copy, so that the survey's measurements apply again.
    #[serde(skip)]
    pub holds: Option<Cell>,
}

impl ContestResult {
    /// Returns `true` if a profile can learn from this comparison.
    pub fn teaches(&self) -> bool {
        !self.seen.is_empty() || self.holds.is_some()
    }
}

/// Result of a single mechanism in a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ContestTime {
    /// The name of the mechanism.
    pub mechanism: &'static str,
    /// The mechanism's wall time divided by the reference's. The reference is the last mechanism with comparable
    /// pieces. `None` if the mechanism has no comparable pieces, because some came from a disk and others from memory.
    pub ratio: Option<f64>,
}

/// The comparison of mechanisms within one transfer.
pub(super) struct MechanismContest {
    turns: Turns,
    contenders: Vec<ContestMechanism>,
    phase: ContestPhase,
    // Bytes moved by any mechanism since the transfer began.
    moved: u64,
    // Minimum number of bytes between two comparisons. Doubles with every comparison but the first.
    rest: u64,
    looks: Vec<ContestResult>,
}

struct ContestMechanism {
    name: &'static str,
    // Samples by round; `None` for a round in which this mechanism did not run or was not timed.
    pieces: Vec<Option<PieceCost>>,
}

#[derive(Clone, Copy, Debug)]
struct PieceCost {
    wall: f64,
    cpu: f64,
    from_disk: bool,
}

impl PieceCost {
    fn counted(&self, prefer: Prefer) -> f64 {
        if prefer == Prefer::Cpu { self.cpu } else { self.wall }
    }
}

enum ContestPhase {
    /// The contenders that have not had their turn in this round, in reverse order: the last element is the next one.
    Trying { left: Vec<usize>, piece: ContestPiece },
    /// The chosen mechanism runs. It has moved `since` bytes so far.
    Settled {
        chosen: &'static str,
        since: u64,
        usual: Option<f64>,
        piece: ContestPiece,
        unusual: u32,
    },
    /// The contest no longer selects the mechanism.
    Over,
}

/// A stretch of bytes moved by one mechanism, and the cost of its timed part.
#[derive(Clone, Copy, Default)]
struct ContestPiece {
    done: u64,
    timed: u64,
    cost: StepCost,
}

/// The number of comparable rounds that a decision needs.
const ROUNDS: usize = 2;
/// A comparison ends after this many rounds, even if pieces from the disk and from the cache kept alternating.
const MOST_ROUNDS: usize = 4;
/// The first 1/`WARM_UP` of a piece is not timed, because it fills pipes and touches buffers for the first time.
const WARM_UP: u64 = 4;
/// If the cost of a mechanism in the first round exceeds the best one's by this factor, it does not run again.
const HOPELESS: f64 = 1.5;
/// A rate counts as changed if it differs from the usual rate by more than this factor.
const CHANGED: f64 = 2.0;
/// The number of consecutive pieces with a changed rate that start another comparison.
const UNUSUAL: u32 = 2;

impl MechanismContest {
    /// Starts a contest between the mechanisms that a plan selected.
    pub fn between(turns: &Turns) -> Self {
        let contender = |name: &&'static str| ContestMechanism { name, pieces: Vec::new() };
        let mut contest = Self {
            contenders: turns.among.iter().map(contender).collect(),
            rest: 0,
            turns: turns.clone(),
            phase: ContestPhase::Over,
            moved: 0,
            looks: Vec::new(),
        };
        match (&turns.promise, turns.among.first()) {
            (Some(promise), Some(measured)) if turns.doubted.is_none() => {
                contest.settle(measured, Some(promise.ns_per_byte));
            }
            _ => {
                contest.rest = contest.length();
                contest.begin();
            }
        }
        contest
    }

    /// Returns `true` if this mechanism takes part.
    pub fn has(&self, name: &str) -> bool {
        self.contenders.iter().any(|contender| contender.name == name)
    }

    /// Returns the mechanism that has the turn; `None` if the contest is over.
    pub fn turn(&self) -> Option<&'static str> {
        match &self.phase {
            ContestPhase::Trying { left, .. } => left.last().map(|n| self.contenders[*n].name),
            ContestPhase::Settled { chosen, .. } => Some(*chosen),
            ContestPhase::Over => None,
        }
    }

    /// Returns `true` while mechanisms are compared.
    pub fn is_comparing(&self) -> bool {
        matches!(self.phase, ContestPhase::Trying { .. })
    }

    /// Forgets the usual rate. The rate of the next piece becomes the usual one.
    pub fn forget_rate(&mut self) {
        if let ContestPhase::Settled { usual, unusual, .. } = &mut self.phase {
            (*usual, *unusual) = (None, 0);
        }
    }

    /// Returns the largest number of bytes that the current mechanism may move in one step.
    pub fn most(&self) -> u64 {
        let ContestPhase::Trying { piece, .. } = &self.phase else { return u64::MAX };
        let warm_up = self.turns.piece / WARM_UP;
        if piece.done < warm_up { warm_up - piece.done } else { self.turns.piece - piece.done }
    }

    /// Records the bytes that the current mechanism moved, and their cost.
    pub fn moved(&mut self, bytes: u64, cost: StepCost) {
        self.moved += bytes;
        let whole = self.turns.piece;
        match &mut self.phase {
            ContestPhase::Trying { left, piece } => {
                piece.add(bytes, cost, whole / WARM_UP);
                if piece.done < whole {
                    return;
                }
                let sample = piece.sample();
                *piece = ContestPiece::default();
                let runner = left.pop().map(|n| &mut self.contenders[n]);
                if let Some(last) = runner.and_then(|runner| runner.pieces.last_mut()) {
                    *last = sample;
                }
                self.next_round();
            }
            ContestPhase::Settled { since, piece, .. } => {
                *since += bytes;
                piece.add(bytes, cost, 0);
                if piece.done >= whole {
                    self.watch();
                }
            }
            ContestPhase::Over => {}
        }
    }

    /// Removes a mechanism that cannot continue.
    pub fn left(&mut self, name: &str) {
        if !self.has(name) {
            return;
        }
        self.contenders.retain(|contender| contender.name != name);
        match &self.phase {
            ContestPhase::Settled { chosen, .. } if *chosen != name => {}
            ContestPhase::Settled { .. } | ContestPhase::Over => self.phase = ContestPhase::Over,
            ContestPhase::Trying { .. } if self.contenders.len() > 1 => self.begin(),
            ContestPhase::Trying { .. } => match self.contenders.first() {
                Some(only) => self.settle(only.name, None),
                None => self.phase = ContestPhase::Over,
            },
        }
    }

    /// Ends the contest if the profile predicts a rate. Under a rate limit, the rate of the transfer does not show how
    /// fast the mechanism could be.
    pub fn trust(&mut self) {
        if self.turns.promise.is_some() {
            self.end();
        }
    }

    pub fn end(&mut self) {
        self.phase = ContestPhase::Over;
    }

    /// Returns the results of all comparisons.
    pub fn into_looks(self) -> Vec<ContestResult> {
        self.looks
    }

    /// Starts a comparison of all contenders with its first round.
    fn begin(&mut self) {
        for contender in &mut self.contenders {
            contender.pieces.clear();
        }
        self.phase = ContestPhase::Trying { left: Vec::new(), piece: ContestPiece::default() };
        self.next_round();
    }

    /// If this round is complete, starts the next round or decides.
    fn next_round(&mut self) {
        let ContestPhase::Trying { left, piece } = &mut self.phase else { return };
        if !left.is_empty() {
            return;
        }
        let rounds = self.contenders.first().map_or(0, |contender| contender.pieces.len());
        let all = 0..self.contenders.len();
        let run: Vec<usize> = match rounds {
            0 => all.collect(),
            _ => all.filter(|n| !is_hopeless(&self.contenders, *n, self.turns.prefer)).collect(),
        };
        let compared = comparable(&self.contenders);
        let is_over = compared.len() >= ROUNDS || rounds >= MOST_ROUNDS;
        // If only one contender is left to run, all others are known to be much slower.
        if is_over || rounds > 0 && run.len() < 2 {
            return self.decide(&compared);
        }
        *left = run;
        // Every other round runs in reverse order, so that drift favours no contender.
        if rounds.is_multiple_of(2) {
            left.reverse();
        }
        *piece = ContestPiece::default();
        self.contenders.iter_mut().for_each(|contender| contender.pieces.push(None));
    }

    /// Chooses by the common rule ([`rank`]) from the costs of the comparable rounds.
    fn decide(&mut self, rounds: &[usize]) {
        let costs = ComparedCosts::of(&self.contenders, rounds);
        // The rule expects candidates in the order of their safety.
        let listed = MECHANISMS.iter().map(|m| m.info().name);
        let candidates = listed
            .filter_map(|name| self.contenders.iter().find(|contender| contender.name == name))
            .map(|contender| Candidate {
                name: contender.name,
                fits: Ok(()),
                prior: Prior::NONE,
                evidence: costs.evidence(contender),
            });
        let winner = rank(candidates.collect(), self.turns.prefer).into_iter().next();
        // If no pieces are comparable, the contender that the plan lists first continues.
        let winner = winner.filter(|_| costs.reference.is_some()).map(|verdict| verdict.mechanism);
        let Some(chosen) = winner.or(self.contenders.first().map(|likely| likely.name)) else {
            return;
        };
        let tried = self.contenders.iter().map(|contender| ContestTime {
            mechanism: contender.name,
            ratio: costs.ratio(contender, |sample| sample.wall),
        });
        let from_disk = rounds.first().is_some_and(|n| {
            self.contenders.iter().filter_map(|c| c.pieces[*n]).any(|sample| sample.from_disk)
        });
        let (at, tried) = (self.moved, tried.collect());
        let by_name = self.contenders.iter().find(|contender| contender.name == chosen);
        let usual = by_name.and_then(|contender| costs.best(contender, |sample| sample.wall));
        let cells = || self.turns.promise.iter().flat_map(|promise| &promise.cells);
        let is_again = !from_disk && Some(chosen) == self.turns.doubted;
        let holds = cells().find(|_| is_again).cloned();
        let seen = if from_disk || is_again || Some(&chosen) == self.turns.among.first() {
            Vec::new()
        } else {
            let is_usual = costs.reference.is_some_and(|last| last.name == LAST_RESORT.info().name);
            cells().filter(|_| is_usual).filter_map(|cell| costs.seen(cell)).collect()
        };
        if !from_disk {
            // Each comparison replaces the cells of the previous one, because its conditions may have been temporary.
            self.looks.iter_mut().for_each(|look| (look.seen, look.holds) = (Vec::new(), None));
        }
        self.looks.push(ContestResult { at, from_disk, tried, chosen, seen, holds });
        self.settle(chosen, usual);
    }

    fn settle(&mut self, chosen: &'static str, usual: Option<f64>) {
        let piece = ContestPiece::default();
        self.phase = ContestPhase::Settled { chosen, since: 0, usual, piece, unusual: 0 };
    }

    /// Returns the number of bytes that one comparison takes.
    fn length(&self) -> u64 {
        self.turns.piece * (self.contenders.len() * ROUNDS) as u64
    }

    /// Starts another comparison if the rate has changed and enough bytes are left for it to pay off.
    fn watch(&mut self) {
        let length = self.length();
        let ContestPhase::Settled { since, usual, piece, unusual, .. } = &mut self.phase else {
            return;
        };
        let Some(PieceCost { wall: now, from_disk, .. }) = piece.sample() else { return };
        *piece = ContestPiece::default();
        // While the usual rate is the profile's, pieces from a disk are ignored, because the profile describes cached
        // bytes. A rate above the profile's does not start a comparison either.
        let is_promise = self.turns.promise.is_some() && self.looks.is_empty();
        if is_promise && from_disk {
            return;
        }
        let usual = *usual.get_or_insert(now);
        let has_changed = now > usual * CHANGED || !is_promise && now * CHANGED < usual;
        *unusual = if has_changed { *unusual + 1 } else { 0 };
        let left = self.turns.len.saturating_sub(self.moved);
        if *unusual >= UNUSUAL && *since >= self.rest && left > length * 2 {
            self.rest = (self.rest * 2).max(length);
            if self.contenders.len() > 1 {
                self.begin();
            }
        }
    }
}

/// The costs of the mechanisms in the rounds that can be compared.
struct ComparedCosts<'c> {
    contenders: &'c [ContestMechanism],
    rounds: &'c [usize],
    /// The last mechanism with comparable pieces.
    reference: Option<&'c ContestMechanism>,
}

impl<'c> ComparedCosts<'c> {
    fn of(contenders: &'c [ContestMechanism], rounds: &'c [usize]) -> Self {
        let mut costs = Self { contenders, rounds, reference: None };
        costs.reference =
            contenders.iter().rfind(|contender| costs.best(contender, |c| c.wall).is_some());
        costs
    }

    /// Returns the contender's smallest cost. Interruptions can only increase a cost.
    fn best(&self, contender: &ContestMechanism, cost: fn(&PieceCost) -> f64) -> Option<f64> {
        let samples = self.rounds.iter().filter_map(|n| contender.pieces[*n].as_ref());
        samples.map(cost).min_by(f64::total_cmp)
    }

    fn ratio(&self, contender: &ContestMechanism, cost: fn(&PieceCost) -> f64) -> Option<f64> {
        Some(self.best(contender, cost)? / self.best(self.reference?, cost)?)
    }

    fn evidence(&self, contender: &ContestMechanism) -> Option<Evidence> {
        let wall = self.ratio(contender, |sample| sample.wall)?;
        Some(as_evidence(wall, self.ratio(contender, |sample| sample.cpu)?))
    }

    /// Returns `cell` with the ratios that this comparison found for its mechanism.
    fn seen(&self, cell: &Cell) -> Option<Cell> {
        let of = self.contenders.iter().find(|contender| contender.name == cell.mechanism)?;
        let about = |ratio: f64| {
            let (lo, hi) = (ratio * (1.0 - LEAST_NOISE), ratio * (1.0 + LEAST_NOISE));
            Ratio { ratio, lo, hi }
        };
        let wall = about(self.ratio(of, |sample| sample.wall)?);
        let cpu = about(self.ratio(of, |sample| sample.cpu)?);
        let ns_per_byte = self.best(of, |sample| sample.wall)?;
        Some(Cell { wall, cpu, ns_per_byte, rounds: ROUNDS as u32, ..cell.clone() })
    }
}

/// Converts ratios to the evidence that the rule of choice expects.
fn as_evidence(wall: f64, cpu: f64) -> Evidence {
    let exactly = |ratio| Ratio { ratio, lo: ratio, hi: ratio };
    Evidence::of_this_run(exactly(wall), exactly(cpu), ROUNDS as u32)
}

/// Returns `true` if this contender's cost in the first round was far above the best one's. Only pieces of the same
/// kind (disk or cache) are compared.
fn is_hopeless(contenders: &[ContestMechanism], n: usize, prefer: Prefer) -> bool {
    let first = |contender: &ContestMechanism| contender.pieces.first().copied().flatten();
    let Some(own) = first(&contenders[n]) else { return false };
    let others = contenders.iter().filter_map(first);
    let same = others.filter(|other| other.from_disk == own.from_disk);
    let best = same.map(|other| other.counted(prefer)).min_by(f64::total_cmp);
    best.is_some_and(|best| own.counted(prefer) > best * HOPELESS)
}

/// Returns the rounds in which all pieces were of one kind (disk or cache). If there are such rounds of both kinds,
/// only those of the kind that occurred last are returned.
fn comparable(contenders: &[ContestMechanism]) -> Vec<usize> {
    let rounds = contenders.first().map_or(0, |contender| contender.pieces.len());
    let kind = |round: usize| {
        let mut kinds = contenders.iter().filter_map(|c| c.pieces[round]).map(|s| s.from_disk);
        let first = kinds.next()?;
        kinds.all(|kind| kind == first).then_some(first)
    };
    let last = (0..rounds).rev().find_map(kind);
    (0..rounds).filter(|round| last.is_some() && kind(*round) == last).collect()
}

impl ContestPiece {
    fn add(&mut self, bytes: u64, cost: StepCost, warm_up: u64) {
        if self.done >= warm_up {
            self.timed += bytes;
            self.cost.add(cost);
        }
        self.done += bytes;
    }

    fn sample(&self) -> Option<PieceCost> {
        let a_byte = |time: Duration| time.as_nanos().max(1) as f64 / self.timed.max(1) as f64;
        (self.timed > 0).then(|| PieceCost {
            wall: a_byte(self.cost.wall),
            cpu: a_byte(self.cost.cpu),
            // The threshold ignores small reads: even for cached bytes, the file system may read its own metadata from
            // the disk.
            from_disk: self.cost.read > self.timed / 2,
        })
    }
}

#[cfg(test)]
mod tests;

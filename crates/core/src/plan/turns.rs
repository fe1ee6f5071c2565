//! Selects the mechanisms that take turns on the pieces of a transfer.

use serde::Serialize;

use super::{Request, is_pair_likely};
use crate::{
    Blocks, Facts, Mechanism, Prefer, Tuning, Verdict,
    mechanisms::{LAST_RESORT, by_name},
    profile::{Cell, Evidence, LEAST_NOISE, Ratio},
};

/// Mechanisms that take turns on the first pieces of a transfer, the likeliest first. The best one moves the rest
/// (docs/decisions/013).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Turns {
    /// Their names, at least two.
    pub among: Vec<&'static str>,
    /// Bytes per turn.
    pub piece: u64,
    /// Length of the whole transfer in bytes, as reported before it starts.
    pub len: u64,
    /// The cost to minimize.
    pub prefer: Prefer,
    /// The measurement of the first mechanism, which runs alone at first, as long as it is as fast as measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promise: Option<Promise>,
    /// The mechanism that a survey measured as the best, if an earlier copy contradicted the survey. No mechanism then
    /// runs alone at first. If the doubted mechanism wins the turns, the survey's measurement applies again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubted: Option<&'static str>,
}

/// The measured rate of the first mechanism in [`Turns::among`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Promise {
    /// Nanoseconds per byte, with the source in the page cache.
    pub ns_per_byte: f64,
    /// A cell (a measurement) for each mechanism that may take a turn, as a profile stores it. The comparison fills in
    /// the costs.
    #[serde(skip)]
    pub(crate) cells: Vec<Cell>,
}

impl Promise {
    /// Returns the tuning that the profile has for a mechanism.
    pub(crate) fn tuning(&self, mechanism: &str) -> Tuning {
        let cell = self.cells.iter().find(|cell| cell.mechanism == mechanism);
        cell.map(|cell| cell.tuning.clone()).unwrap_or_default()
    }
}

/// A turn is at most 1/64 of a transfer, so that slow mechanisms move only a small part of it.
pub(super) const FEWEST_TURNS: u64 = 64;
/// A turn is a multiple of this length, in bytes. Shorter turns would not show a difference. A transfer that is too
/// short for 64 turns of this length has no turns.
pub(super) const LEAST_TURN: u64 = 1 << 20;
/// The largest turn, in bytes. Longer turns would give no more information.
const MOST_TURN: u64 = 16 << 20;

impl Turns {
    /// Selects the mechanisms that take turns: the best measured one, the doubted one, up to two likely ones, and the
    /// last resort. `before` contains the verdicts by surveys alone if observations of copies have replaced some
    /// measurements; otherwise it is empty.
    pub(super) fn of(
        facts: &Facts,
        request: &Request,
        verdicts: &[Verdict],
        before: &[Verdict],
    ) -> Option<Self> {
        const LIKELY: usize = 2;
        let len = facts.len?;
        let piece = (len / FEWEST_TURNS / LEAST_TURN * LEAST_TURN).min(MOST_TURN);
        let is_addressed = facts.source.addressed && facts.sink.addressed;
        let has_one_measure = request.prefer != Prefer::Memory;
        if piece == 0 || !is_addressed || !facts.kept_here() || !has_one_measure {
            return None;
        }
        let usable = verdicts.iter().filter(|verdict| verdict.judgement.is_usable());
        let movers = usable.clone().filter_map(|verdict| by_name(verdict.mechanism));
        let last = LAST_RESORT.info().name;
        // Between two file systems the kernel refuses copy_file_range, so only mechanisms that give each file its own
        // blocks take part.
        let may_take_part = |mechanism: &&'static dyn Mechanism| {
            let is_near = facts.one_file_system();
            is_pair_likely(*mechanism, facts)
                && (is_near || mechanism.info().nature.blocks == Blocks::Own)
        };
        let chosen = best_measured(verdicts);
        let first = chosen.map(|verdict| verdict.mechanism);
        let doubted = best_measured(before).map(|verdict| verdict.mechanism);
        let doubted = doubted.filter(|name| first.is_some_and(|first| first != *name));
        let is_other = |name: &&'static str| Some(*name) != first && Some(*name) != doubted;
        let likely = movers.filter(may_take_part).map(|mechanism| mechanism.info().name);
        let likely = likely.filter(is_other).take(LIKELY);
        let last = usable.clone().map(|verdict| verdict.mechanism).filter(|name| *name == last);
        let among = first.into_iter().chain(doubted).chain(likely);
        let among: Vec<_> = among.chain(last.filter(is_other)).collect();
        let promise = chosen.and_then(|verdict| verdict.evidence.as_ref()).map(|evidence| {
            let among = usable.filter(|verdict| among.contains(&verdict.mechanism));
            let cells = among.map(|verdict| verdict.as_seen(evidence, facts, len)).collect();
            Promise { ns_per_byte: evidence.ns_per_byte, cells }
        });
        let prefer = request.prefer;
        (among.len() > 1).then_some(Self { among, piece, len, prefer, promise, doubted })
    }
}

/// Returns the verdict of the best usable mechanism that was measured.
fn best_measured(verdicts: &[Verdict]) -> Option<&Verdict> {
    verdicts.iter().find(|verdict| verdict.judgement.is_usable() && verdict.evidence.is_some())
}

impl Verdict {
    /// Returns a cell for this mechanism under the conditions of `evidence`. Its costs are placeholders.
    fn as_seen(&self, evidence: &Evidence, facts: &Facts, size: u64) -> Cell {
        Cell {
            source: facts.source.key(),
            sink: facts.sink.key(),
            options: [facts.source.options(), facts.sink.options()],
            mechanism: self.mechanism.to_owned(),
            tuning: self.tuning.clone(),
            // Copies of files of similar size share one cell, so the size is rounded down to a power of two.
            size: 1 << size.max(1).ilog2(),
            load: evidence.load,
            sink_state: evidence.sink_state,
            wall: Ratio::ONE,
            cpu: Ratio::ONE,
            noise: LEAST_NOISE,
            ns_per_byte: evidence.ns_per_byte,
            memory: None,
            sessions: 1,
            rounds: 1,
            at: String::new(),
            provisional: true,
        }
    }
}

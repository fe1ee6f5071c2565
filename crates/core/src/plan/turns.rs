//! Which mechanisms take turns on the pieces of a transfer, and when.

use serde::Serialize;

use super::{Request, is_pair_likely};
use crate::{
    Blocks, Facts, Mechanism, Prefer, Tuning, Verdict,
    mechanisms::{LAST_RESORT, by_name},
    profile::{Cell, Evidence, LEAST_NOISE, Ratio},
};

/// Mechanisms that take turns on the first pieces of a transfer, the likeliest first: the best of them
/// goes on with the rest (docs/decisions/013).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Turns {
    /// Their names, at least two.
    pub among: Vec<&'static str>,
    /// Bytes of a turn.
    pub piece: u64,
    /// Bytes of the whole transfer, as far as known.
    pub len: u64,
    /// What "best" means.
    pub prefer: Prefer,
    /// What was measured of the first one: it goes on alone for as long as it keeps that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promise: Option<Promise>,
    /// What was measured as the best, where an earlier copy saw something else: turns are taken at once, and
    /// the measurement holds again if it wins them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubted: Option<&'static str>,
}

/// What a profile has promised of the mechanism that was chosen by it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Promise {
    /// Nanoseconds per byte, from the page cache.
    pub ns_per_byte: f64,
    /// What a profile would hold of each that may take a turn, but for the costs.
    #[serde(skip)]
    pub(crate) cells: Vec<Cell>,
}

impl Promise {
    /// How the profile would tune one of them.
    pub(crate) fn tuning(&self, mechanism: &str) -> Tuning {
        let cell = self.cells.iter().find(|cell| cell.mechanism == mechanism);
        cell.map(|cell| cell.tuning.clone()).unwrap_or_default()
    }
}

/// The share of a transfer that one turn is, so that what the worse ones cost is a small part of it.
pub(super) const TURN: u64 = 64;
/// A turn is of whole ones of these: less says nothing, and a shorter transfer has no turns.
pub(super) const LEAST_TURN: u64 = 1 << 20;
/// More says no more.
const MOST_TURN: u64 = 16 << 20;

impl Turns {
    /// The mechanisms that take turns, by the verdicts: what was measured and chosen, if any was; two that are likely; and what
    /// serves everywhere. `before` are the verdicts by measurements alone, where something that a copy saw has
    /// the place of some.
    pub(super) fn of(
        facts: &Facts,
        request: &Request,
        (verdicts, before): (&[Verdict], &[Verdict]),
    ) -> Option<Self> {
        const LIKELY: usize = 2;
        let len = facts.len?;
        let piece = (len / TURN / LEAST_TURN * LEAST_TURN).min(MOST_TURN);
        let is_addressed = facts.source.addressed && facts.sink.addressed;
        let has_one_measure = request.prefer != Prefer::Memory;
        if piece == 0 || !is_addressed || !facts.kept_here() || !has_one_measure {
            return None;
        }
        let usable = verdicts.iter().filter(|verdict| verdict.judgement.is_usable());
        let movers = usable.clone().filter_map(|verdict| by_name(verdict.mechanism));
        let last = LAST_RESORT.info().name;
        // Between two file systems a copy by the kernel alone is refused.
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

/// The best of those that were measured.
fn best_measured(verdicts: &[Verdict]) -> Option<&Verdict> {
    verdicts.iter().find(|verdict| verdict.judgement.is_usable() && verdict.evidence.is_some())
}

impl Verdict {
    /// What a profile would hold of it if it were seen under the conditions of `evidence`.
    fn as_seen(&self, evidence: &Evidence, facts: &Facts, size: u64) -> Cell {
        Cell {
            source: facts.source.key(),
            sink: facts.sink.key(),
            options: [facts.source.options(), facts.sink.options()],
            mechanism: self.mechanism.to_owned(),
            tuning: self.tuning.clone(),
            // Copies of files about as large say the same.
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

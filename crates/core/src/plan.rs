//! From facts, promises and a profile to a plan that explains itself.

use serde::Serialize;
use std::collections::HashMap;

use crate::{
    Blocks, Facts, Guarantees, Judgement, MECHANISMS, Mechanism, Prefer, Profile, Role, Tuning,
    Unfit, Verdict,
    mechanisms::{LAST_RESORT, by_name},
    profile::Load,
    select::{Candidate, Prior, rank},
};

/// What the person who asks wants beyond the promises in the facts.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// What "best" means.
    pub prefer: Prefer,
    /// What else the machine will be doing.
    pub load: Load,
    /// Only this mechanism (`--method`).
    pub only: Option<String>,
    /// None of these (`--no-method`).
    pub without: Vec<String>,
    /// Mechanisms that must be asked for and were, by name (`--direct`).
    pub asked_for: Vec<String>,
    /// It is driven by steps that must not sleep ([`TransferRun`](crate::TransferRun)).
    pub stepwise: bool,
    /// Reasons found by probing, by mechanism.
    pub unfit: HashMap<&'static str, Unfit>,
}

/// A verdict for every mechanism on one job.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// One per mechanism, best first: the chosen one, the usable ones in order, then the unfit.
    pub verdicts: Vec<Verdict>,
    /// Why nothing could be chosen; the plan then has no ladder.
    pub impossible: Option<String>,
    /// Which mechanisms are to take turns on the first bytes, as nobody measured them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<Turns>,
}

/// Mechanisms that take turns on the first pieces of a transfer, the likeliest first: the best of them
/// goes on with the rest (docs/decisions/013).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Turns {
    /// Their names, at least two.
    pub among: Vec<&'static str>,
    /// Bytes of a turn.
    pub piece: u64,
    /// Bytes of the whole transfer, as far as known.
    pub len: u64,
    /// What "best" means.
    pub prefer: Prefer,
}

/// The share of a transfer that one turn is, so that what the worse ones cost is a small part of it.
const TURN: u64 = 64;
/// A turn is of whole ones of these: less says nothing, and a shorter transfer has no turns.
const LEAST_TURN: u64 = 1 << 20;
/// More says no more.
const MOST_TURN: u64 = 16 << 20;

impl Turns {
    /// Who takes turns, by the verdicts: two that are likely, and what serves everywhere.
    fn of(facts: &Facts, request: &Request, verdicts: &[Verdict]) -> Option<Self> {
        const LIKELY: usize = 2;
        let len = facts.len?;
        let piece = (len / TURN / LEAST_TURN * LEAST_TURN).min(MOST_TURN);
        let is_addressed = facts.source.addressed && facts.sink.addressed;
        let is_measured = verdicts.iter().any(|verdict| verdict.evidence.is_some());
        let has_one_measure = request.prefer != Prefer::Memory;
        if piece == 0 || is_measured || !is_addressed || !facts.kept_here() || !has_one_measure {
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
        let likely = movers.filter(may_take_part).map(|mechanism| mechanism.info().name);
        let last = usable.map(|verdict| verdict.mechanism).filter(|name| *name == last);
        let among: Vec<_> = likely.take(LIKELY).chain(last).collect();
        (among.len() > 1).then_some(Self { among, piece, len, prefer: request.prefer })
    }
}

impl Plan {
    /// Judges every mechanism for a job.
    pub fn make(facts: &Facts, request: &Request, profile: Option<&Profile>) -> Self {
        let known = profile.map(|profile| profile.known(facts, request.load));
        let candidate = |mechanism: &&'static dyn Mechanism| {
            let (name, fits) = (mechanism.info().name, fitness(*mechanism, facts, request));
            let known = known.as_ref().filter(|_| fits.is_ok());
            let evidence = known.and_then(|known| known.evidence(name, request.prefer));
            // What was measured of a mechanism says more than what it should do.
            let prior = if evidence.is_some() { Prior::NONE } else { prior(*mechanism, facts) };
            Candidate { name, fits, prior, evidence }
        };
        let mut plan = Self::of(MECHANISMS.iter().map(candidate).collect(), request.prefer);
        if request.only.is_some() {
            plan.asked_for();
        }
        if plan.chosen().is_none() {
            plan.impossible = Some(impossible(request, &plan.verdicts));
        }
        plan.turns = Turns::of(facts, request, &plan.verdicts);
        plan
    }

    /// The plan that the rule makes of these candidates.
    pub fn of(candidates: Vec<Candidate>, prefer: Prefer) -> Self {
        Self { verdicts: rank(candidates, prefer), impossible: None, turns: None }
    }

    /// Says of the chosen one that the caller named it.
    pub fn asked_for(&mut self) {
        if let Some(Judgement::Chosen { why }) = self.verdicts.first_mut().map(|v| &mut v.judgement)
        {
            "asked for".clone_into(why);
        }
    }

    /// The plan of someone who does not care: list order, nothing measured.
    pub fn unmeasured(facts: &Facts) -> Self {
        Self::make(facts, &Request::default(), None)
    }

    /// The chosen mechanism.
    pub fn chosen(&self) -> Option<&Verdict> {
        self.verdicts.first().filter(|verdict| verdict.judgement.is_usable())
    }

    /// The mechanisms between two ends to try, in order, down to the last resort.
    pub fn ladder(&self) -> Vec<(&'static dyn Mechanism, Tuning)> {
        let last = LAST_RESORT.info().name;
        let usable = self.verdicts.iter().take_while(|v| v.judgement.is_usable());
        let mut ladder = Vec::new();
        for verdict in usable {
            if let Some(mechanism) = by_name(verdict.mechanism) {
                ladder.push((mechanism, verdict.tuning.clone()));
            }
            if verdict.mechanism == last {
                break;
            }
        }
        ladder
    }
}

/// Whether a mechanism can and may do a job; the first reason against it.
fn fitness(mechanism: &dyn Mechanism, facts: &Facts, request: &Request) -> Result<(), Unfit> {
    let info = mechanism.info();
    let (source, sink) = (facts.source.kind, facts.sink.kind);
    let asked_for = request.only.as_deref() == Some(info.name)
        || request.asked_for.iter().any(|name| name == info.name);
    if request.only.as_deref().is_some_and(|only| only != info.name) {
        return Err(Unfit::because("another method was asked for"));
    }
    if request.without.iter().any(|name| name == info.name) {
        return Err(Unfit::because("excluded by --no-method"));
    }
    match info.role {
        Role::Harness => return Err(Unfit::because("moves nothing: for the lab only")),
        Role::OnRequest(flag) if !asked_for => {
            return Err(Unfit::because(format!("only on request: {flag}")));
        }
        Role::OnRequest(_) | Role::Mover => {}
    }
    let pair = info
        .pair(source, sink)
        .ok_or_else(|| Unfit::because(format!("does not move {source} -> {sink}")))?;
    if !pair.gives.cover(facts.needs()) {
        let promise = if facts.needs().stable && !pair.gives.stable { "stable" } else { "private" };
        return Err(Unfit::because(format!(
            "shares pages: the sink could change later (not {promise}; --zero-copy allows it)"
        )));
    }
    if let Some(wait) = info.nature.waits.filter(|_| request.stepwise) {
        return Err(Unfit::because(wait));
    }
    mechanism.fits(facts)?;
    request.unfit.get(info.name).map_or(Ok(()), |unfit| Err(unfit.clone()))
}

/// What the facts say of a mechanism that nobody measured on such ends.
fn prior(mechanism: &dyn Mechanism, facts: &Facts) -> Prior {
    if mechanism.saves_work(facts) {
        let why = "not measured: saves the copy where it works";
        Prior { saves_work: true, guess: 0, why }
    } else if uses_what_was_given_up(mechanism, facts) {
        let why = if facts.source.unchanging {
            "not measured: shares pages with a source that can never change"
        } else {
            "not measured: shares pages, as was allowed"
        };
        Prior { saves_work: false, guess: 0, why }
    } else if is_likely(mechanism, facts) {
        let why = "not measured: costs least where it is not the best";
        Prior { saves_work: false, guess: 1, why }
    } else {
        Prior { guess: 2, ..Prior::NONE }
    }
}

/// Whether it is one of those that nowhere cost much. That was measured within one file system.
fn is_likely(mechanism: &dyn Mechanism, facts: &Facts) -> bool {
    is_pair_likely(mechanism, facts) && facts.one_file_system() && facts.kept_here()
}

fn is_pair_likely(mechanism: &dyn Mechanism, facts: &Facts) -> bool {
    let pair = mechanism.info().pair(facts.source.kind, facts.sink.kind);
    pair.is_some_and(|pair| pair.likely)
}

/// Whether it promises less than a copy, and so does less: who gives a promise up wants that.
fn uses_what_was_given_up(mechanism: &dyn Mechanism, facts: &Facts) -> bool {
    let pair = mechanism.info().pair(facts.source.kind, facts.sink.kind);
    pair.is_some_and(|pair| !pair.gives.cover(Guarantees::COPIED))
}

fn impossible(request: &Request, unfit: &[Verdict]) -> String {
    let Some(only) = &request.only else {
        return "every mechanism is excluded".to_owned();
    };
    let reason = unfit.iter().find(|v| v.mechanism == only).map(|v| match &v.judgement {
        Judgement::Unfit { reason } => reason.as_str(),
        _ => "",
    });
    match reason {
        Some(reason) => format!("{only}: {reason}"),
        None => format!("{only}: no such mechanism (`thalweg list` names them)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EndFacts, Kind};

    fn first(needs: Guarantees) -> &'static str {
        let end = |kind| EndFacts { kind, addressed: false, ..EndFacts::MEMORY };
        let facts = Facts { source: end(Kind::File), sink: end(Kind::Pipe), len: None, needs };
        Plan::unmeasured(&facts).chosen().expect("the last resort at least").mechanism
    }

    #[test]
    fn an_unmeasured_promise_is_kept_until_it_is_given_up() {
        let gives =
            |name| by_name(name).and_then(|m| m.info().pair(Kind::File, Kind::Pipe)).unwrap().gives;
        assert!(gives(first(Guarantees::COPIED)).stable);
        assert!(!gives(first(Guarantees::SHARED)).stable);
    }

    fn between_files(len: u64, change: impl Fn(&mut EndFacts)) -> Facts {
        let mut source = EndFacts::of_key("file:ext4", "rw").unwrap();
        change(&mut source);
        let sink = EndFacts::of_key("file:ext4", "rw").unwrap();
        Facts { source, sink, len: Some(len), needs: Guarantees::COPIED }
    }

    #[test]
    fn between_files_what_lost_least_elsewhere_goes_before_the_last_resort() {
        let names = |facts: &Facts| -> Vec<_> {
            Plan::unmeasured(facts).ladder().iter().map(|rung| rung.0.info().name).collect()
        };
        let here = names(&between_files(1 << 20, |_| ()));
        assert_eq!(here.last(), Some(&LAST_RESORT.info().name));
        let is_likely = |name: &&&str| {
            by_name(name).unwrap().info().pair(Kind::File, Kind::File).unwrap().likely
        };
        let likely = MECHANISMS
            .iter()
            .map(|m| m.info())
            .filter(|info| info.pair(Kind::File, Kind::File).is_some_and(|pair| pair.likely));
        assert_eq!(here.iter().filter(is_likely).count(), likely.count());
        // A program answers for these bytes, or another file system has them.
        let fuse = between_files(1 << 20, |end| end.fs.as_mut().unwrap().name = "fuseblk".into());
        assert!(names(&fuse).iter().filter(is_likely).count() == 0);
        let elsewhere = between_files(1 << 20, |end| end.fs.as_mut().unwrap().dev = 7);
        assert!(names(&elsewhere).iter().filter(is_likely).count() == 0);
    }

    #[test]
    fn turns_are_for_long_files_that_nobody_measured() {
        let least = TURN * LEAST_TURN;
        let turns = |facts: &Facts, request: &Request| Plan::make(facts, request, None).turns;
        let plain = Request::default();
        let among = turns(&between_files(least, |_| ()), &plain).expect("long enough").among;
        assert_eq!((among.len(), among.last()), (3, Some(&LAST_RESORT.info().name)));
        assert!(turns(&between_files(least - 1, |_| ()), &plain).is_none());
        assert!(turns(&between_files(least, |end| end.addressed = false), &plain).is_none());
        let one = Request { only: Some(among[0].to_owned()), ..Request::default() };
        assert!(turns(&between_files(least, |_| ()), &one).is_none());
        let memory = Request { prefer: Prefer::Memory, ..Request::default() };
        assert!(turns(&between_files(least, |_| ()), &memory).is_none());
        // Between two file systems the kernel copies nothing by itself.
        let elsewhere = between_files(least, |end| end.fs.as_mut().unwrap().dev = 7);
        let apart = turns(&elsewhere, &plain).expect("long enough").among;
        let blocks = |name: &&str| by_name(name).unwrap().info().nature.blocks;
        assert!(apart.iter().all(|name| blocks(name) == Blocks::Own), "{apart:?}");
    }
}

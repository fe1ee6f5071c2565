//! Makes a plan with reasons from facts, required guarantees and a profile.

use serde::Serialize;
use std::collections::HashMap;

use crate::{
    Facts, Guarantees, Judgement, Kind, MECHANISMS, Mechanism, Prefer, Profile, Tuning, Unfit,
    Verdict,
    mechanisms::{LAST_RESORT, by_name},
    profile::{Load, MatchingCells},
    select::{Candidate, Prior, rank},
};

mod bands;
mod turns;

pub use bands::{SizeBands, bands};
pub use turns::{Promise, Turns};

/// The user's wishes beyond the guarantees in the facts.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The cost to minimize.
    pub prefer: Prefer,
    /// The expected load of the machine.
    pub load: Load,
    /// If set, only this mechanism is used (`--method`).
    pub only: Option<String>,
    /// Mechanisms that are excluded (`--no-method`).
    pub without: Vec<String>,
    /// Names of mechanisms that are used only on request and were requested (`--direct`).
    pub asked_for: Vec<String>,
    /// `true` if the transfer is driven by steps that must not sleep ([`TransferRun`](crate::TransferRun)).
    pub stepwise: bool,
    /// Reasons against mechanisms that probing found.
    pub unfit: HashMap<&'static str, Unfit>,
}

/// A verdict for every mechanism, for one transfer. The default plan has no verdicts, and the driver uses the last
/// resort.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Plan {
    /// The verdicts on all mechanisms, best first: the chosen one, the usable ones in order, then the unfit.
    pub verdicts: Vec<Verdict>,
    /// The reason that no mechanism could be chosen. [`Self::ladder`] is then empty.
    pub impossible: Option<String>,
    /// The mechanisms that take turns on the first bytes. Without measurements, the turns start at once. Otherwise they
    /// start as soon as the chosen mechanism is slower than measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<Turns>,
}

impl Plan {
    /// Judges every mechanism for a transfer.
    pub fn make(facts: &Facts, request: &Request, profile: Option<&Profile>) -> Self {
        let known = profile.map(|profile| profile.known(facts, request.load));
        let mut plan = Self::by(known.as_ref(), facts, request);
        if request.only.is_some() {
            plan.asked_for();
        }
        if plan.chosen().is_none() {
            plan.impossible = Some(impossible(request, &plan.verdicts));
        }
        let before = profile.and_then(|profile| profile.displaced(facts, request.load));
        let before = before.map(|known| Self::by(Some(&known), facts, request));
        let before = before.map(|before| before.verdicts).unwrap_or_default();
        plan.turns = Turns::of(facts, request, &plan.verdicts, &before);
        plan
    }

    /// Creates a plan. Its verdicts are based on the measurements of this kind of endpoints, if there are any.
    fn by(known: Option<&MatchingCells<'_>>, facts: &Facts, request: &Request) -> Self {
        let candidate = |mechanism: &&'static dyn Mechanism| {
            let (name, fits) = (mechanism.info().name, fitness(*mechanism, facts, request));
            let known = known.filter(|_| fits.is_ok());
            let evidence = known.and_then(|known| known.evidence(name, request.prefer));
            // Expectations count only for mechanisms that were not measured.
            let prior = if evidence.is_some() { Prior::NONE } else { prior(*mechanism, facts) };
            Candidate { name, fits, prior, evidence }
        };
        Self::of(MECHANISMS.iter().map(candidate).collect(), request.prefer)
    }

    /// Makes a plan by ranking these candidates.
    pub fn of(candidates: Vec<Candidate>, prefer: Prefer) -> Self {
        Self { verdicts: rank(candidates, prefer), impossible: None, turns: None }
    }

    /// Gives "requested" as the reason for the chosen mechanism.
    pub fn asked_for(&mut self) {
        if let Some(Judgement::Chosen { why }) = self.verdicts.first_mut().map(|v| &mut v.judgement)
        {
            "requested".clone_into(why);
        }
    }

    /// Makes a plan with the default request and without a profile.
    pub fn unmeasured(facts: &Facts) -> Self {
        Self::make(facts, &Request::default(), None)
    }

    /// Returns the verdict of the chosen mechanism; `None` if no mechanism is usable.
    pub fn chosen(&self) -> Option<&Verdict> {
        self.verdicts.first().filter(|verdict| verdict.judgement.is_usable())
    }

    /// Returns the predicted nanoseconds per byte for a verdict: those of the first measured verdict, multiplied by
    /// this verdict's wall-time ratio and divided by that of the first. The verdict's own time per byte is not used: it
    /// may come from other sessions and contradict the order of the verdicts. `None` for any other tie, and for a
    /// verdict without measurements.
    pub fn expected(&self, verdict: &Verdict) -> Option<f64> {
        let first = self.verdicts.iter().find(|verdict| verdict.evidence.is_some())?;
        let (own, of) = (verdict.evidence.as_ref()?, first.evidence.as_ref()?);
        let is_shown = verdict.mechanism == first.mechanism || verdict.judgement != Judgement::Tie;
        is_shown.then(|| of.ns_per_byte * own.wall.ratio / of.wall.ratio)
    }

    /// Returns the mechanisms to try, in order, up to the last resort.
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

impl Plan {
    /// Returns `true` if both plans try the same mechanisms in the same order.
    fn same_ladder(&self, other: &Self) -> bool {
        let steps = |plan: &Self| {
            let ladder = plan.ladder().into_iter();
            ladder.map(|(step, tuning)| (step.info().name, tuning)).collect::<Vec<_>>()
        };
        steps(self) == steps(other)
    }
}

/// Returns an error with the first reason for which a mechanism cannot or may not do a transfer.
fn fitness(mechanism: &dyn Mechanism, facts: &Facts, request: &Request) -> Result<(), Unfit> {
    let info = mechanism.info();
    let (source, sink) = (facts.source.kind, facts.sink.kind);
    let asked_for = request.only.as_deref() == Some(info.name)
        || request.asked_for.iter().any(|name| name == info.name);
    if request.only.as_deref().is_some_and(|only| only != info.name) {
        return Err(Unfit::because("another method was requested"));
    }
    if request.without.iter().any(|name| name == info.name) {
        return Err(Unfit::because("excluded by --no-method"));
    }
    info.role.allows(asked_for)?;
    let pair = info
        .pair(source, sink)
        .ok_or_else(|| Unfit::because(format!("does not support {source} -> {sink}")))?;
    if !pair.gives.cover(facts.needs()) {
        return Err(Unfit::because(
            "shares pages with the source, so later changes could appear in the copy; --zero-copy allows this",
        ));
    }
    if let Some(wait) = info.nature.waits.filter(|_| request.stepwise) {
        return Err(Unfit::because(wait));
    }
    mechanism.fits(facts)?;
    request.unfit.get(info.name).map_or(Ok(()), |unfit| Err(unfit.clone()))
}

/// Returns the expectation for a mechanism that was not measured between endpoints of these kinds.
fn prior(mechanism: &dyn Mechanism, facts: &Facts) -> Prior {
    if mechanism.saves_work(facts) {
        let why = "not measured: avoids copying the data if the system supports it";
        Prior { saves_work: true, guess: 0, why }
    } else if uses_what_was_given_up(mechanism, facts) {
        let why = if facts.source.unchanging {
            "not measured: shares pages with a source that can never change"
        } else {
            "not measured: shares pages, as --zero-copy allows"
        };
        Prior { saves_work: false, guess: 0, why }
    } else if is_likely(mechanism, facts) {
        let why = "not measured: the default for this pair of endpoints";
        Prior { saves_work: false, guess: 1, why }
    } else {
        Prior { guess: 2, ..Prior::NONE }
    }
}

/// Returns `true` if the mechanism is expected to cost little on every machine. Measurements support this between
/// pipes, and within one file system.
fn is_likely(mechanism: &dyn Mechanism, facts: &Facts) -> bool {
    let between_pipes = (facts.source.kind, facts.sink.kind) == (Kind::Pipe, Kind::Pipe);
    is_pair_likely(mechanism, facts)
        && (between_pipes || facts.one_file_system() && facts.kept_here())
}

fn is_pair_likely(mechanism: &dyn Mechanism, facts: &Facts) -> bool {
    let pair = mechanism.info().pair(facts.source.kind, facts.sink.kind);
    pair.is_some_and(|pair| pair.likely)
}

/// Returns `true` if the mechanism gives fewer guarantees than a copy, and so does less work. Such a mechanism is
/// usable only if the caller waived a guarantee or the source can never change.
fn uses_what_was_given_up(mechanism: &dyn Mechanism, facts: &Facts) -> bool {
    let pair = mechanism.info().pair(facts.source.kind, facts.sink.kind);
    pair.is_some_and(|pair| !pair.gives.cover(Guarantees::COPIED))
}

fn impossible(request: &Request, unfit: &[Verdict]) -> String {
    let Some(only) = &request.only else {
        return "no method can be used here; `thalweg plan -v` shows the reasons".to_owned();
    };
    let reason = unfit.iter().find(|v| v.mechanism == only).map(|v| match &v.judgement {
        Judgement::Unfit { reason } => reason.as_str(),
        _ => "",
    });
    match reason {
        Some(reason) => format!("{only}: {reason}"),
        None => format!("{only}: no such method; `thalweg list` shows all"),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        turns::{FEWEST_TURNS, LEAST_TURN},
        *,
    };
    use crate::{
        Blocks, EndFacts,
        profile::{Cell, Ratio, cell::tests::cell},
    };

    mod large_machines;

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

    #[test]
    fn between_pipes_the_buffers_move_without_a_copy() {
        let pipe = EndFacts { kind: Kind::Pipe, addressed: false, ..EndFacts::MEMORY };
        let needs = Guarantees::COPIED;
        let facts = Facts { source: pipe.clone(), sink: pipe, len: None, needs };
        let ladder = Plan::unmeasured(&facts).ladder();
        let names: Vec<_> = ladder.iter().map(|step| step.0.info().name).collect();
        assert_eq!((names[0], names.last()), ("splice", Some(&LAST_RESORT.info().name)));
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
            Plan::unmeasured(facts).ladder().iter().map(|step| step.0.info().name).collect()
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
        // Likely mechanisms are not used if a user-space program serves the files, or if they are on two file systems.
        let fuse = between_files(1 << 20, |end| end.fs.as_mut().unwrap().name = "fuseblk".into());
        assert!(names(&fuse).iter().filter(is_likely).count() == 0);
        let elsewhere = between_files(1 << 20, |end| end.fs.as_mut().unwrap().dev = 7);
        assert!(names(&elsewhere).iter().filter(is_likely).count() == 0);
    }

    #[test]
    fn turns_are_for_long_files_without_a_measurement() {
        let least = FEWEST_TURNS * LEAST_TURN;
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
        // Between two file systems, only mechanisms that give each file its own blocks take part.
        let elsewhere = between_files(least, |end| end.fs.as_mut().unwrap().dev = 7);
        let apart = turns(&elsewhere, &plain).expect("long enough").among;
        let blocks = |name: &&str| by_name(name).unwrap().info().nature.blocks;
        assert!(apart.iter().all(|name| blocks(name) == Blocks::Own), "{apart:?}");
    }

    /// Returns a profile in which the last resort takes 1 ns per byte, and these mechanisms the given multiples of it.
    fn profile(ratios: &[(&str, f64)]) -> Profile {
        let mut profile = Profile::new();
        let cell = |(name, ratio): &(&str, f64)| Cell {
            source: "file:ext4".into(),
            sink: "file:ext4".into(),
            options: ["rw".into(), "rw".into()],
            ns_per_byte: *ratio,
            ..cell(name, 1 << 30, *ratio)
        };
        profile.merge(ratios.iter().map(cell).collect());
        profile
    }

    #[test]
    fn what_was_measured_goes_on_alone_for_as_long_as_it_keeps_its_promise() {
        let last = LAST_RESORT.info().name;
        let profile = profile(&[("splice", 0.5), (last, 1.0)]);
        let plan = Plan::make(&between_files(1 << 30, |_| ()), &Request::default(), Some(&profile));
        let turns = plan.turns.expect("a long file");
        assert_eq!((turns.among.first(), turns.among.last()), (Some(&"splice"), Some(&last)));
        assert_eq!(turns.among.len(), 4, "two that are likely as well: {:?}", turns.among);
        let promise = turns.promise.expect("it was measured");
        assert!((promise.ns_per_byte - 0.5).abs() < 1e-9);
        assert_eq!(promise.cells.len(), turns.among.len());
        assert!(promise.cells.iter().all(|cell| cell.provisional && cell.size == 1 << 30));
    }

    #[test]
    fn what_a_copy_saw_counts_for_files_about_as_large_and_until_it_is_measured() {
        let last = LAST_RESORT.info().name;
        let measured = [("splice", 0.5), (last, 1.0)];
        let mut profile = profile(&measured);
        let again = profile.cells.clone();
        let chosen = |profile: &Profile, len| {
            let request = Request { without: vec!["reflink".into()], ..Request::default() };
            let plan = Plan::make(&between_files(len, |_| ()), &request, Some(profile));
            plan.chosen().expect("a plan").mechanism
        };
        let seen = Cell {
            provisional: true,
            ..profile.cells.iter().find(|c| c.mechanism == "splice").unwrap().clone()
        };
        let tuned = Cell {
            tuning: Tuning::of("pipe", 64 << 10),
            wall: Ratio { ratio: 3.5, ..seen.wall },
            ..seen
        };
        assert!(!profile.learn([], "2026-11-24T00:00:00Z"));
        assert!(profile.learn([&tuned], "2026-11-24T00:00:00Z"));
        assert_eq!(
            profile.cells.iter().filter(|cell| cell.at.starts_with("2026-11-24")).count(),
            1
        );
        assert_eq!((chosen(&profile, 1 << 30), chosen(&profile, 600 << 20)), (last, last));
        assert_eq!((chosen(&profile, 100 << 20), chosen(&profile, 8 << 30)), ("splice", "splice"));
        let again_slow = Cell { wall: Ratio { ratio: 4.5, ..tuned.wall }, ..tuned.clone() };
        assert!(profile.learn([&tuned, &again_slow], "2026-11-25T00:00:00Z"));
        let seen: Vec<_> = profile.cells.iter().filter(|cell| cell.provisional).collect();
        assert_eq!((seen.len(), seen[0].wall.ratio), (1, 4.5), "the last one of a run counts");
        let text = serde_json::to_vec(&profile).unwrap();
        assert_eq!(Profile::parse(&text), Ok(profile.clone()));
        let turns = |len| {
            let plan = Plan::make(&between_files(len, |_| ()), &Request::default(), Some(&profile));
            plan.turns.expect("a long file")
        };
        let here = turns(1 << 30);
        assert_eq!((here.doubted, &here.among[..2]), (Some("splice"), &[last, "splice"][..]));
        assert_eq!(turns(8 << 30).doubted, None, "no copy of about that size saw anything");
        let conditions = &here.promise.expect("it was measured").cells[0];
        let mut forgetful = profile.clone();
        assert!(forgetful.forget(conditions) && !forgetful.forget(conditions));
        assert_eq!((chosen(&forgetful, 1 << 30), forgetful.cells.len()), ("splice", again.len()));
        profile.merge(again);
        assert_eq!(chosen(&profile, 1 << 30), "splice");
        assert!(profile.cells.iter().all(|cell| !cell.provisional));
    }
}

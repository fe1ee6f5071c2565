//! From facts, promises and a profile to a plan that explains itself.

use serde::Serialize;
use std::collections::HashMap;

use crate::{
    Facts, Guarantees, Judgement, MECHANISMS, Mechanism, Prefer, Profile, Role, Tuning, Unfit,
    Verdict,
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
        plan
    }

    /// The plan that the rule makes of these candidates.
    pub fn of(candidates: Vec<Candidate>, prefer: Prefer) -> Self {
        Self { verdicts: rank(candidates, prefer), impossible: None }
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
    } else {
        Prior { guess: 1, ..Prior::NONE }
    }
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
}

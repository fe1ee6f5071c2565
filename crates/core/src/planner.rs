//! From facts, promises and a profile to a plan that explains itself.

use serde::Serialize;
use std::collections::HashMap;

use crate::{
    Facts, Guarantees, MECHANISMS, Mechanism, Prefer, Profile, Role, Tuning, Unfit,
    mechanisms::{LAST_RESORT, by_name},
    profile::{Evidence, Load},
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

/// What is thought of one mechanism.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// Its name.
    pub mechanism: &'static str,
    /// How it would be tuned.
    pub tuning: Tuning,
    /// The judgement.
    #[serde(flatten)]
    pub judgement: Judgement,
    /// What was measured, if anything.
    pub evidence: Option<Evidence>,
}

/// The judgement on one mechanism.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "verdict", rename_all = "lowercase")]
pub enum Judgement {
    /// It does the job; why it.
    Chosen {
        /// `fastest measured`, `least memory measured`, `not measured: first in the list`, `asked
        /// for`.
        why: String,
    },
    /// Not shown to be slower than the best: the difference is within the noise of the run.
    Tie,
    /// Measured slower than the chosen one.
    Slower {
        /// Its time divided by the chosen one's.
        by: f64,
    },
    /// It would do, and nobody measured it on such ends.
    Unmeasured,
    /// It cannot or may not do this job.
    Unfit {
        /// Why.
        reason: String,
    },
}

impl Judgement {
    /// Whether the mechanism could do the job.
    pub fn is_usable(&self) -> bool {
        !matches!(self, Self::Unfit { .. })
    }
}

impl Plan {
    /// Judges every mechanism for a job.
    pub fn make(facts: &Facts, request: &Request, profile: Option<&Profile>) -> Self {
        let mut usable = Vec::new();
        let mut unfit = Vec::new();
        let known = profile.map(|profile| profile.known(facts, request.load));
        for mechanism in MECHANISMS {
            let name = mechanism.info().name;
            match fitness(*mechanism, facts, request) {
                Ok(()) => {
                    let evidence = known.as_ref().and_then(|k| k.evidence(name, request.prefer));
                    usable.push((*mechanism, evidence));
                }
                Err(Unfit { reason, .. }) => unfit.push(Verdict {
                    mechanism: name,
                    tuning: Tuning::default(),
                    judgement: Judgement::Unfit { reason },
                    evidence: None,
                }),
            }
        }
        let impossible = usable.is_empty().then(|| impossible(request, &unfit));
        let mut verdicts = rank(usable, facts, request);
        verdicts.extend(unfit);
        Self { verdicts, impossible }
    }

    /// The plan of someone who does not care: list order, nothing measured.
    pub fn unmeasured(facts: &Facts) -> Self {
        Self::make(facts, &Request::default(), None)
    }

    /// The chosen mechanism.
    pub fn chosen(&self) -> Option<&Verdict> {
        self.verdicts.first().filter(|verdict| verdict.judgement.is_usable())
    }

    /// The mechanisms to try, in order, down to the last resort.
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
    mechanism.fits(facts)?;
    request.unfit.get(info.name).map_or(Ok(()), |unfit| Err(unfit.clone()))
}

/// The most time that may be lost by taking the earlier of two mechanisms that could not be told
/// apart: the regret a plan is allowed. In a noisier run the better median counts.
pub const GIVEN_UP_FOR_SAFETY: f64 = 0.05;

fn rank(
    mut usable: Vec<(&'static dyn Mechanism, Option<Evidence>)>,
    facts: &Facts,
    request: &Request,
) -> Vec<Verdict> {
    let score = |e: &Option<Evidence>| e.as_ref().map(|e| e.score(request.prefer));
    let best = usable.iter().filter_map(|(_, e)| score(e)).min_by(f64::total_cmp);
    // Who is not shown to be slower than the best, within this share of its time?
    let within = |e: &Option<Evidence>, most: f64| match (e, best) {
        (Some(e), Some(best)) => e.score(request.prefer) <= best * (1.0 + e.noise.min(most)),
        _ => false,
    };
    let ties = |e: &Option<Evidence>| within(e, GIVEN_UP_FOR_SAFETY);
    // Stable sort: within a class the list order stands.
    usable.sort_by(|(a, ea), (b, eb)| {
        let class = |m: &dyn Mechanism, e: &Option<Evidence>| match score(e) {
            _ if ties(e) => 1,
            None if m.saves_work(facts) => 0,
            None if best.is_none() && uses_what_was_given_up(m, facts) => 1,
            Some(_) => 2,
            None => 3,
        };
        let by_class = class(*a, ea).cmp(&class(*b, eb));
        by_class.then_with(|| match (class(*a, ea), score(ea), score(eb)) {
            (2, Some(x), Some(y)) => x.total_cmp(&y),
            _ => std::cmp::Ordering::Equal,
        })
    });
    let fastest = usable.first().and_then(|(_, e)| e.clone()).map(|e| cost(&e, request.prefer));
    let times_slower = |e: &Option<Evidence>, first: Option<f64>| {
        let own = e.as_ref().map_or(1.0, |e| cost(e, request.prefer));
        first.map_or(own, |first| own / first)
    };
    let verdicts = usable.into_iter().enumerate().map(|(n, (mechanism, evidence))| {
        let judgement = match (n, score(&evidence)) {
            (0, _) if request.only.is_some() => Judgement::Chosen { why: "asked for".into() },
            (0, Some(score)) => Judgement::Chosen { why: measured_why(score, request.prefer) },
            (0, None) if mechanism.saves_work(facts) => {
                Judgement::Chosen { why: "not measured: saves the copy where it works".into() }
            }
            (0, None) if uses_what_was_given_up(mechanism, facts) => {
                Judgement::Chosen { why: "not measured: shares pages, as was allowed".into() }
            }
            (0, None) => Judgement::Chosen { why: "not measured: first in the list".into() },
            (_, Some(_)) if within(&evidence, f64::MAX) => Judgement::Tie,
            (_, Some(_)) => Judgement::Slower { by: times_slower(&evidence, fastest) },
            (_, None) => Judgement::Unmeasured,
        };
        let tuning = evidence.as_ref().map_or_else(Tuning::default, |e| e.tuning.clone());
        Verdict { mechanism: mechanism.info().name, tuning, judgement, evidence }
    });
    verdicts.collect()
}

/// What a mechanism takes of what is counted in seconds, against the reference.
fn cost(evidence: &Evidence, prefer: Prefer) -> f64 {
    match prefer {
        Prefer::Cpu => evidence.cpu.ratio,
        Prefer::Wall | Prefer::Memory => evidence.wall.ratio,
    }
}

fn measured_why(score: f64, prefer: Prefer) -> String {
    let why = match prefer {
        Prefer::Wall => "fastest measured",
        Prefer::Cpu => "least processor time measured",
        Prefer::Memory if score.is_finite() => "least memory measured",
        Prefer::Memory => "nobody measured the memory: first in the list",
    };
    why.to_owned()
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

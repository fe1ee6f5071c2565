//! Chooses the mechanism. These facts matter, most important first: a resident destination, huge pages, a lent source,
//! permission for process_vm, the size, a free core. A profile contains measurements of their effect. Without a
//! profile, `guess` ranks the mechanisms, and the order of [`MECHANISMS`] decides between equal ranks.

use super::facts::{Destination, Facts};
use super::measured::known;
use super::mechanism::Mechanism;
use super::mechanisms::{MECHANISMS, by_name};
use crate::shared::wait::Wait;
use std::collections::HashMap;
use std::sync::Arc;
use thalweg_core::select::{Candidate, Prior};
use thalweg_core::{Guarantees, Plan, Prefer, Profile, Tuning, Unfit};

/// Options of a sender or receiver. The sender decides the guarantees and the mechanism, and the receiver decides the
/// destination. Mechanisms that need trust are used only if both sides set `trust`.
#[derive(Clone, Debug)]
pub struct Options {
    /// Use only this mechanism; `None` allows all.
    pub only: Option<String>,
    /// Never use these mechanisms.
    pub without: Vec<String>,
    /// Tuning knobs of the mechanism in `only`.
    pub tuning: Tuning,
    /// Guarantees that the mechanism must provide.
    pub needs: Guarantees,
    /// Type of the destination memory.
    pub destination: Destination,
    /// `true` if the sender will send memory from [`Sender::alloc`](super::Sender::alloc).
    pub will_loan: bool,
    /// Size of most buffers, in bytes.
    pub size: Option<u64>,
    /// `true` if the peer may read and write this process's memory. Never applies to a peer of another user.
    pub trust: bool,
    /// Method of waiting for the peer.
    pub wait: Wait,
    /// Called periodically during waits. If it returns `true`, the operation is aborted, for example after a signal.
    pub stop: Option<fn() -> bool>,
    /// Mechanisms that must not be chosen because a probe of them failed, with the reasons.
    pub unfit: HashMap<&'static str, Unfit>,
    /// Measurements of this machine. The caller must leave out a stale profile.
    pub measured: Option<Arc<Profile>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            only: None,
            without: Vec::new(),
            tuning: Tuning::default(),
            needs: Guarantees::default(),
            destination: Destination::Unknown,
            will_loan: false,
            size: None,
            trust: true,
            wait: Wait::default(),
            stop: None,
            unfit: HashMap::new(),
            measured: None,
        }
    }
}

impl Options {
    /// Returns the default options, restricted to one mechanism with its tuning.
    pub fn only(mechanism: &str, tuning: Tuning) -> Self {
        Self { only: Some(mechanism.to_owned()), tuning, ..Self::default() }
    }
}

/// Returns a verdict for every mechanism, or only for the one in `options.only`. Tries no mechanism:
/// [`Mechanism::probe`] tests one in this process, and the negotiation tests it between both processes.
pub fn choose(facts: &Facts, options: &Options, profile: Option<&Profile>) -> Plan {
    let known = profile.map(|profile| known(profile, facts));
    let candidate = |mechanism: &dyn Mechanism| {
        let name = mechanism.info().name;
        let evidence = known.as_ref().and_then(|known| known.evidence(name, Prefer::Wall));
        let why = "not measured: first in the default order";
        let prior = Prior { saves_work: false, guess: guess(mechanism, facts), why };
        Candidate { name, fits: fitness(mechanism, facts, options), prior, evidence }
    };
    let Some(only) = &options.only else {
        let mut plan = Plan::of(
            MECHANISMS.iter().map(|mechanism| candidate(*mechanism)).collect(),
            Prefer::Wall,
        );
        if plan.chosen().is_none() {
            plan.impossible =
                Some("no method can be used between two processes on this machine".to_owned());
        }
        return plan;
    };
    let candidates = by_name(only).map(candidate).into_iter().collect();
    let mut plan = Plan::of(candidates, Prefer::Wall);
    plan.asked_for();
    for verdict in &mut plan.verdicts {
        verdict.tuning.clone_from(&options.tuning);
    }
    plan
}

/// Returns the rank of a mechanism that was not measured; lower is better.
fn guess(mechanism: &dyn Mechanism, facts: &Facts) -> u8 {
    let wants_loan = mechanism.info().nature.wants_loan;
    let is_new = facts.destination == Destination::Fresh;
    match () {
        // First come mechanisms that divide the page faults of a new destination between two cores, because the page
        // faults cost more than a copy.
        () if is_new && facts.free_core && mechanism.shares_faults(facts.size) => 0,
        // Next come mechanisms that fit the sender. If it will lend memory, a mechanism for loans saves a copy. If it
        // will not, a mechanism for loans makes an additional copy.
        () if wants_loan == facts.will_loan => 1,
        () => u8::from(wants_loan) + 2,
    }
}

fn fitness(mechanism: &dyn Mechanism, facts: &Facts, options: &Options) -> Result<(), Unfit> {
    let info = mechanism.info();
    if options.without.iter().any(|name| name == info.name) {
        return Err(Unfit::because("excluded by the caller"));
    }
    info.role.allows(options.only.is_some())?;
    if !info.gives_in_memory().cover(options.needs) {
        return Err(Unfit::because("does not give the required guarantees"));
    }
    match &facts.trusted {
        Some(why) if info.nature.wants_trust => return Err(Unfit::because(why.clone())),
        _ => {}
    }
    options.unfit.get(info.name).map_or(Ok(()), |unfit| Err(unfit.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bulk::measured::tests::profile;
    use thalweg_core::{Judgement, Role};

    /// Returns the mechanisms that may be chosen without a request by name.
    fn movers() -> impl Iterator<Item = &'static dyn Mechanism> {
        MECHANISMS.iter().copied().filter(|mechanism| mechanism.info().role == Role::Mover)
    }

    fn first(facts: &Facts, options: &Options) -> &'static str {
        first_mechanism(facts, options).info().name
    }

    fn first_mechanism(facts: &Facts, options: &Options) -> &'static dyn Mechanism {
        let plan = choose(facts, options, options.measured.as_deref());
        by_name(plan.chosen().unwrap().mechanism).unwrap()
    }

    #[test]
    fn without_measurements_the_list_decides_and_a_loan_goes_first() {
        let (facts, options) = (Facts::default(), Options::default());
        assert_eq!(first(&facts, &options), MECHANISMS[0].info().name);
        let lent = Facts { will_loan: true, ..facts.clone() };
        assert!(first_mechanism(&lent, &options).info().nature.wants_loan);
        let plan = choose(&facts, &options, None);
        let last = plan.verdicts.iter().rev().find(|verdict| verdict.judgement.is_usable());
        let last = last.and_then(|verdict| by_name(verdict.mechanism));
        assert!(last.is_some_and(|mechanism| mechanism.info().nature.wants_loan));
    }

    #[test]
    fn a_new_destination_is_for_mechanisms_in_which_both_sides_take_its_faults() {
        let options = Options::default();
        let fresh = Facts {
            destination: Destination::Fresh,
            free_core: true,
            size: Some(1 << 30),
            ..Facts::default()
        };
        let shares = |facts: &Facts| first_mechanism(facts, &options).shares_faults(facts.size);
        assert!(shares(&fresh));
        assert!(shares(&Facts { will_loan: true, size: None, ..fresh.clone() }));
        // Only one side copies a buffer that consists of a single piece.
        assert!(!shares(&Facts { size: Some(1), ..fresh.clone() }));
        assert!(!shares(&Facts { free_core: false, ..fresh.clone() }));
        assert!(!shares(&Facts { trusted: Some("another user".to_owned()), ..fresh.clone() }));
        for destination in [Destination::Unknown, Destination::Resident, Destination::FreshHuge] {
            let facts = Facts { destination, ..fresh.clone() };
            assert_eq!(first(&facts, &options), MECHANISMS[0].info().name, "{destination:?}");
        }
    }

    #[test]
    fn what_was_measured_wins_and_what_is_not_allowed_is_named() {
        // In this profile, each mechanism is faster than the previous one in the list. The fastest ones are used only
        // on request.
        let cost = |n: usize| 0.5_f64.powi(n as i32);
        let profile = profile(
            MECHANISMS.iter().enumerate().map(|(n, mechanism)| (mechanism.info().name, cost(n))),
        );
        let mut options = Options { measured: Some(profile), ..Options::default() };
        let last = movers().last().unwrap().info();
        assert_ne!(MECHANISMS.last().unwrap().info().role, Role::Mover);
        let facts = Facts { trusted: Some("another user".to_owned()), ..Facts::default() };
        assert_eq!(first(&facts, &options), last.name);
        options.without.push(last.name.to_owned());
        assert_ne!(first(&facts, &options), last.name);
        let tried = MECHANISMS[0].info().name;
        options.unfit.insert(tried, Unfit::because("tried"));
        for verdict in choose(&facts, &options, options.measured.as_deref()).verdicts {
            let info = by_name(verdict.mechanism).unwrap().info();
            let out = info.nature.wants_trust || [last.name, tried].contains(&info.name);
            let out = out || info.role != Role::Mover;
            assert_eq!(!verdict.judgement.is_usable(), out, "{}", info.name);
        }
    }

    #[test]
    fn a_mechanism_for_studies_is_never_chosen_and_its_verdict_says_so() {
        for mechanism in MECHANISMS.iter().filter(|mechanism| mechanism.info().role != Role::Mover)
        {
            let name = mechanism.info().name;
            let measured = Some(profile([("ring", 1.0), (name, 0.1)]));
            for will_loan in [false, true] {
                let facts = Facts { will_loan, ..Facts::default() };
                for measured in [None, measured.as_deref()] {
                    let plan = choose(&facts, &Options::default(), measured);
                    let verdict = plan.verdicts.iter().find(|verdict| verdict.mechanism == name);
                    let judgement = &verdict.unwrap().judgement;
                    let reason = "used only with --method, because ";
                    assert!(
                        matches!(judgement, Judgement::Unfit { reason: said } if said.starts_with(reason)),
                        "{name}: {judgement:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn one_mechanism_alone_is_one_mechanism_or_none() {
        let only = |name: &str| {
            let options = Options::only(name, Tuning::of("piece", 4096));
            choose(&Facts::default(), &options, None)
        };
        for mechanism in MECHANISMS {
            let plan = only(mechanism.info().name);
            let [verdict] = &plan.verdicts[..] else { panic!("{plan:?}") };
            assert_eq!(verdict.judgement, Judgement::Chosen { why: "requested".to_owned() });
            assert_eq!(verdict.tuning, Tuning::of("piece", 4096));
        }
        assert!(only("carrier-pigeon").verdicts.is_empty());
    }
}

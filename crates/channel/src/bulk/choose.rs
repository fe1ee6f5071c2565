//! Which arm to use. The facts that matter, in the order of their effect: whether the destination is
//! resident, huge pages, whether the source is lent, whether process_vm is allowed, the size, a free
//! core. What they are worth is measured elsewhere and handed in; without that the list decides.

use super::arm::{Arm, Source};
use super::arms::{ARMS, by_name};
use super::choice::Cited;
use crate::wait::Wait;
use std::fmt;
use std::sync::Arc;
use thalweg_core::{Guarantees, Tuning, Unfit, select::GIVEN_UP_FOR_SAFETY};

/// Where the bytes are to land.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Destination {
    /// Not told.
    #[default]
    Unknown,
    /// Memory that was written to before.
    Resident,
    /// Memory whose pages are not there yet, of the ordinary size.
    Fresh,
    /// The same, on huge pages.
    FreshHuge,
}

impl Destination {
    const ALL: [Self; 4] = [Self::Unknown, Self::Resident, Self::Fresh, Self::FreshHuge];

    pub(crate) fn from_word(word: u64) -> Self {
        Self::ALL.get(word as usize).copied().unwrap_or_default()
    }
}

/// What is known when an arm is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Where the bytes land, as the receiver says.
    pub destination: Destination,
    /// The sender will write its data into [`Loan`](super::Loan)s.
    pub will_loan: bool,
    /// The two may use each other's memory; else why not.
    pub trusted: Option<String>,
    /// The size of most buffers.
    pub size: Option<u64>,
    /// There is a core for each side.
    pub free_core: bool,
}

/// What was measured on this machine.
pub trait Measured: Send + Sync + fmt::Debug {
    /// The cost of an arm under these facts, in any unit that is the same for all arms; less is
    /// better. `None`: not measured.
    fn cost(&self, facts: &Facts, arm: &str) -> Option<f64>;

    /// The share of a cost below which a difference shows nothing.
    fn noise(&self, facts: &Facts, arm: &str) -> f64 {
        let _ = (facts, arm);
        0.0
    }

    /// The knobs that this cost is of. `None`: the defaults.
    fn tuning(&self, facts: &Facts, arm: &str) -> Option<Tuning> {
        let _ = (facts, arm);
        None
    }

    /// What is told of an arm to somebody who asks. `None`: there is no more to tell than the cost.
    fn cited(&self, facts: &Facts, arm: &str) -> Option<Cited> {
        let _ = (facts, arm);
        None
    }
}

/// What the caller of either side wants. The promises and the arm are the sender's to name, the
/// destination is the receiver's; both sides must trust.
#[derive(Clone, Debug)]
pub struct Options {
    /// This arm and no other; without it the choice is free.
    pub only: Option<String>,
    /// Never these arms.
    pub without: Vec<String>,
    /// Knobs of the arm in `only`.
    pub tuning: Tuning,
    /// Promises that are not given up.
    pub needs: Guarantees,
    /// Where the bytes land.
    pub destination: Destination,
    /// The sender will use [`Sender::alloc`](super::Sender::alloc).
    pub will_loan: bool,
    /// The size of most buffers.
    pub size: Option<u64>,
    /// Let the peer, if it is of the same user, read and write this process's memory.
    pub trust: bool,
    /// How to wait for the other side.
    pub wait: Wait,
    /// Asked now and then: whether to give up, for interrupts.
    pub stop: Option<fn() -> bool>,
    /// Measurements of this machine.
    pub measured: Option<Arc<dyn Measured>>,
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
            measured: None,
        }
    }
}

impl Options {
    /// The defaults, with one arm and its knobs.
    pub fn only(arm: &str, tuning: Tuning) -> Self {
        Self { only: Some(arm.to_owned()), tuning, ..Self::default() }
    }
}

/// An arm and what is said about it.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The arm.
    pub arm: &'static dyn Arm,
    /// The knobs to use it with.
    pub tuning: Tuning,
    /// What a buffer costs this way, if it was measured.
    pub cost: Option<f64>,
    /// The share of it below which a difference shows nothing.
    pub noise: f64,
    /// Why it is not used, if it is not.
    pub unfit: Option<Unfit>,
}

/// Every arm, the best first, those that cannot be used last. None is tried here: that is for
/// [`Arm::probe`] and for the two ends when they agree.
pub fn choose(facts: &Facts, options: &Options) -> Vec<Verdict> {
    let verdict = |arm: &'static dyn Arm| {
        let measured = options.measured.as_ref();
        let cost = measured.and_then(|measured| measured.cost(facts, arm.info().name));
        let noise = measured.map_or(0.0, |measured| measured.noise(facts, arm.info().name));
        let tuning = match &options.only {
            Some(_) => Some(options.tuning.clone()),
            None => measured.and_then(|measured| measured.tuning(facts, arm.info().name)),
        };
        let tuning = tuning.unwrap_or_default();
        Verdict { arm, tuning, cost, noise, unfit: refusal(arm, facts, options) }
    };
    if let Some(name) = &options.only {
        return by_name(name).map(verdict).into_iter().collect();
    }
    let mut verdicts: Vec<Verdict> = ARMS.iter().map(|arm| verdict(*arm)).collect();
    let usable = verdicts.iter().filter(|verdict| verdict.unfit.is_none());
    let least = usable.filter_map(|verdict| verdict.cost).min_by(f64::total_cmp);
    // Stable: where nothing else decides the list does.
    verdicts.sort_by(|a, b| {
        let of = |v: &Verdict| {
            // Who is shown to be slower goes by its cost, all others by what is known without it.
            let slower = v.cost.filter(|_| !v.ties_with(least, GIVEN_UP_FOR_SAFETY));
            let guess = if slower.is_some() { 0 } else { guess(v.arm, facts) };
            let (unfit, unmeasured) = (v.unfit.is_some(), v.cost.is_none());
            (unfit, unmeasured, slower.is_some(), slower.unwrap_or(0.0), guess)
        };
        of(a).partial_cmp(&of(b)).unwrap_or(std::cmp::Ordering::Equal)
    });
    verdicts
}

impl Verdict {
    /// Whether it is not shown to cost more than the least, within this share of that.
    pub fn ties_with(&self, least: Option<f64>, most: f64) -> bool {
        let within = |cost: f64, least: f64| cost <= least * (1.0 + self.noise.min(most));
        self.cost.zip(least).is_some_and(|(cost, least)| within(cost, least))
    }
}

/// What is known without measuring; less is better.
fn guess(arm: &dyn Arm, facts: &Facts) -> u8 {
    let wants_loan = arm.info().source == Source::Lent;
    let is_new = facts.destination == Destination::Fresh;
    match () {
        // The faults of a new destination cost more than a copy, and two cores have them sooner.
        () if is_new && facts.free_core && arm.shares_faults(facts.size) => 0,
        // A loan saves a copy, and without one the arm pays for it.
        () if wants_loan == facts.will_loan => 1,
        () => u8::from(wants_loan) + 2,
    }
}

fn refusal(arm: &dyn Arm, facts: &Facts, options: &Options) -> Option<Unfit> {
    let info = arm.info();
    if options.without.iter().any(|name| name == info.name) {
        return Some(Unfit::because("left out by the caller"));
    }
    if !info.gives.cover(options.needs) {
        return Some(Unfit::because("does not keep the promises that are needed"));
    }
    match &facts.trusted {
        Some(why) if info.trusting => Some(Unfit::because(why.clone())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(facts: &Facts, options: &Options) -> &'static str {
        choose(facts, options)[0].arm.info().name
    }

    #[test]
    fn without_measurements_the_list_decides_and_a_loan_goes_first() {
        let (facts, options) = (Facts::default(), Options::default());
        assert_eq!(first(&facts, &options), ARMS[0].info().name);
        let lent = Facts { will_loan: true, ..facts.clone() };
        let best = choose(&lent, &options)[0].arm.info();
        assert_eq!(best.source, Source::Lent);
        let last = choose(&facts, &options);
        let last = last.iter().rev().find(|verdict| verdict.unfit.is_none());
        assert_eq!(last.map(|verdict| verdict.arm.info().source), Some(Source::Lent));
    }

    #[test]
    fn a_new_destination_is_for_arms_in_which_both_sides_take_its_faults() {
        let options = Options::default();
        let fresh = Facts {
            destination: Destination::Fresh,
            free_core: true,
            size: Some(1 << 30),
            ..Facts::default()
        };
        let shares = |facts: &Facts| choose(facts, &options)[0].arm.shares_faults(facts.size);
        assert!(shares(&fresh));
        assert!(shares(&Facts { will_loan: true, size: None, ..fresh.clone() }));
        // What is moved in one piece is moved by one side.
        assert!(!shares(&Facts { size: Some(1), ..fresh.clone() }));
        assert!(!shares(&Facts { free_core: false, ..fresh.clone() }));
        assert!(!shares(&Facts { trusted: Some("another user".to_owned()), ..fresh.clone() }));
        for destination in [Destination::Unknown, Destination::Resident, Destination::FreshHuge] {
            let facts = Facts { destination, ..fresh.clone() };
            assert_eq!(first(&facts, &options), ARMS[0].info().name, "{destination:?}");
        }
    }

    #[derive(Debug)]
    struct Backwards;

    impl Measured for Backwards {
        fn cost(&self, _: &Facts, arm: &str) -> Option<f64> {
            let place = ARMS.iter().position(|other| other.info().name == arm)?;
            Some(-(place as f64))
        }
    }

    #[test]
    fn what_was_measured_wins_and_what_is_not_allowed_is_named() {
        let mut options = Options { measured: Some(Arc::new(Backwards)), ..Options::default() };
        let last = ARMS[ARMS.len() - 1].info();
        let facts = Facts { trusted: Some("another user".to_owned()), ..Facts::default() };
        assert_eq!(first(&facts, &options), last.name);
        options.without.push(last.name.to_owned());
        assert_ne!(first(&facts, &options), last.name);
        for verdict in choose(&facts, &options) {
            let info = verdict.arm.info();
            let out = info.trusting || info.name == last.name;
            assert_eq!(verdict.unfit.is_some(), out, "{}", info.name);
        }
    }

    #[derive(Debug)]
    struct Noisy(f64);

    impl Measured for Noisy {
        fn cost(&self, _: &Facts, arm: &str) -> Option<f64> {
            Some(if arm == ARMS[0].info().name { self.0 } else { 1.0 })
        }

        fn noise(&self, _: &Facts, _: &str) -> f64 {
            0.2
        }
    }

    #[test]
    fn of_arms_that_cannot_be_told_apart_the_earlier_is_taken_if_little_is_lost() {
        for (cost, is_first) in [(1.04, true), (0.5, true), (1.1, false)] {
            let options = Options { measured: Some(Arc::new(Noisy(cost))), ..Options::default() };
            let took = first(&Facts::default(), &options);
            assert_eq!(took == ARMS[0].info().name, is_first, "{cost}: {took}");
        }
    }

    #[test]
    fn one_arm_alone_is_one_arm_or_none() {
        let only = |name: &str| Options::only(name, Tuning::default());
        for arm in ARMS {
            let chosen = choose(&Facts::default(), &only(arm.info().name));
            assert_eq!(chosen.len(), 1);
        }
        assert!(choose(&Facts::default(), &only("carrier-pigeon")).is_empty());
    }
}

//! Who takes part in a session, and with which tunings: mechanisms between real ends or between two
//! processes. The reference is always the first.

use std::collections::BTreeSet;
use thalweg_channel::bulk;
use thalweg_core::{
    Facts, Guarantees, Knob, MECHANISMS, Mechanism, Pair, Role, Tuning, Unfit,
    alias::{self, Alias},
    mechanisms::{self, LAST_RESORT},
    profile::LIBC,
    scratch::Site,
};
use thalweg_kernels::{FILLS, KERNELS, tuned};

use super::{
    job::{EndKeys, Line, SessionJob, Way, Ways},
    pair::{EndKind, Ends, Held},
    processes,
};

/// The mechanisms that may take part.
pub(super) fn of_mechanisms(
    job: &SessionJob,
    facts: &Facts,
    answer: &mut dyn FnMut(Line),
) -> Vec<Way> {
    let mut ways = Vec::new();
    for mechanism in MECHANISMS.iter().filter(|m| m.info().role == Role::Mover) {
        let info = mechanism.info();
        let Some(pair) = info.pair(facts.source.kind, facts.sink.kind) else {
            continue;
        };
        let is_reference = info.name == LAST_RESORT.info().name;
        let tunings = tunings(job, (info.name, info.knobs), is_reference);
        if tunings.is_empty() {
            continue;
        }
        let keeps = || keeps_its_promise(*mechanism, *pair, &job.ends);
        if let Err(unfit) = mechanism.fits(facts).and_then(|()| keeps()) {
            answer(Line::Unfit { way: Way::plain(info.name), reason: unfit.reason });
            continue;
        }
        ways.extend(tunings);
    }
    ways.sort_by_key(|way| *way != Way::plain(LAST_RESORT.info().name));
    ways
}

/// The arms that a request of the default kind may take; the reference is the first of the list that
/// works. From lent memory only those that give it back: what a new loan costs shows when it is written
/// to, which is no part of a transfer.
pub(super) fn of_arms(job: &SessionJob, answer: &mut dyn FnMut(Line)) -> Vec<Way> {
    let mut ways = Vec::new();
    for arm in bulk::MECHANISMS
        .iter()
        .filter(|arm| arm.info().gives_in_memory().cover(Guarantees::default()))
    {
        let info = arm.info();
        let probed = match job.ends.source {
            EndKind::Process(Held::Loan) if arm.keeps_loans() => {
                Err(Unfit::because("a loan does not come back: the next one is new memory"))
            }
            _ => arm.probe(),
        };
        match probed {
            Ok(()) => {
                ways.extend(tunings(job, (info.name, info.knobs), ways.is_empty()));
            }
            Err(unfit) => answer(Line::Unfit { way: Way::plain(info.name), reason: unfit.reason }),
        }
    }
    ways.sort_by_key(|way| !way.tuning.is_default());
    ways
}

/// The kernels that are wanted, none that is made of others; the C library's is the reference.
pub(super) fn of_kernels(job: &SessionJob, answer: &mut dyn FnMut(Line)) -> Vec<Way> {
    let rows: Vec<(&str, bool)> = if job.ends.are_fill() {
        let single = FILLS.iter().filter(|row| row.name != tuned::FILL.name);
        single.map(|row| (row.name, row.ready().is_some())).collect()
    } else {
        let single = KERNELS.iter().filter(|row| row.name != tuned::COPY.name);
        single.map(|row| (row.name, row.ready().is_some())).collect()
    };
    let mut ways = Vec::new();
    for (name, is_ready) in rows {
        let way = Way::plain(name);
        let is_wanted = match &job.ways {
            Ways::Only(ways) => name == LIBC || ways.contains(&way),
            Ways::All | Ways::These(_) => true,
        };
        if !is_ready {
            let reason = "this processor lacks its instructions".to_owned();
            answer(Line::Unfit { way, reason });
        } else if is_wanted {
            ways.push(way);
        }
    }
    ways.sort_by_key(|way| way.name != LIBC);
    ways
}

/// The knobs of a way between such ends; none of one that is not known.
pub(super) fn knobs_of(way: &Way, keys: Option<&EndKeys>) -> &'static [Knob] {
    let knobs = if keys.is_some_and(processes::are_keys_of) {
        bulk::by_name(&way.name).map(|arm| arm.info().knobs)
    } else {
        mechanisms::by_name(&way.name).map(|mechanism| mechanism.info().knobs)
    };
    knobs.unwrap_or_default()
}

/// The tunings with which a way of this name takes part.
fn tunings(job: &SessionJob, (name, knobs): (&str, &[Knob]), is_reference: bool) -> Vec<Way> {
    let plain = Way::plain(name);
    let named = |ways: &[Way]| {
        ways.iter().filter(|way| way.name == name).cloned().collect::<BTreeSet<Way>>()
    };
    match &job.ways {
        Ways::All => {
            let turned = one_knob_turned(knobs).into_iter();
            let turned = turned.map(|tuning| Way { name: name.to_owned(), tuning });
            std::iter::once(plain).chain(turned).collect()
        }
        Ways::These(ways) => {
            let mut wanted = named(ways);
            wanted.insert(plain);
            wanted.into_iter().collect()
        }
        Ways::Only(ways) => {
            let mut wanted = named(ways);
            if is_reference {
                wanted.insert(plain);
            }
            wanted.into_iter().collect()
        }
    }
}

/// Every combination in which one knob is turned, the default not among them.
fn one_knob_turned(knobs: &[Knob]) -> Vec<Tuning> {
    let turned = knobs.iter();
    let turned =
        turned.flat_map(|knob| knob.values[1..].iter().map(|value| Tuning::of(knob.name, *value)));
    turned.collect()
}

/// A mechanism that says its copies are stable is tried: a change of the source must not show.
fn keeps_its_promise(mechanism: &dyn Mechanism, pair: Pair, ends: &Ends) -> Result<(), Unfit> {
    if !alias::applies(pair) || !pair.gives.stable {
        return Ok(());
    }
    let folder = |end: &EndKind| match end {
        EndKind::File(folder) => folder.clone(),
        _ => std::env::temp_dir(),
    };
    let site = Site::between(folder(&ends.source), folder(&ends.sink));
    match alias::probe(mechanism, pair, &site)? {
        Alias::Copied => Ok(()),
        Alias::Shared => Err(Unfit::because(
            "breaks its promise: a later change of the source shows in the sink",
        )),
    }
}

//! Simulated worlds, in which the cost of a byte depends on the mechanism and on its offset.

use super::*;
use crate::{Driver, Facts, Plan, Request, Transfer, plan::Promise, profile::cell::tests::cell};

const MIB: u64 = 1 << 20;
const FILE: u64 = 64 * MIB;

/// Cost function: nanoseconds per byte, and `true` if the byte comes from a disk.
type World<'w> = dyn Fn(&str, u64) -> (f64, bool) + 'w;

/// Returns two mechanisms for the contest, and the last resort, which is the safest and thus first in the list.
fn names() -> [&'static str; 3] {
    let last = LAST_RESORT.info().name;
    let mut others = MECHANISMS.iter().map(|m| m.info().name).filter(|name| *name != last);
    [others.next().unwrap(), others.next().unwrap(), last]
}

fn turns(len: u64) -> Turns {
    let among = names().to_vec();
    Turns { among, piece: len / 64, len, prefer: Prefer::Wall, promise: None, doubted: None }
}

/// Moves all bytes. Returns the mechanisms in order, each with the bytes that it moved, and the nanoseconds taken.
fn sail(
    contest: &mut MechanismContest,
    len: u64,
    world: &World<'_>,
) -> (Vec<(&'static str, u64)>, f64) {
    let (mut at, mut log, mut took) = (0, Vec::<(&'static str, u64)>::new(), 0.0);
    while at < len {
        let name = contest.turn().unwrap();
        let bytes = contest.most().min(MIB / 2).min(len - at);
        let (ns, from_disk) = world(name, at);
        let wall = Duration::from_nanos((ns * bytes as f64) as u64);
        let read = if from_disk { bytes } else { 0 };
        contest.moved(bytes, StepCost { wall, cpu: wall, read });
        took += ns * bytes as f64;
        at += bytes;
        match log.last_mut().filter(|last| last.0 == name) {
            Some(last) => last.1 += bytes,
            None => log.push((name, bytes)),
        }
    }
    (log, took)
}

fn winner(world: &World<'_>) -> &'static str {
    let mut contest = MechanismContest::between(&turns(FILE));
    sail(&mut contest, FILE, world);
    contest.into_looks().last().expect("a look").chosen
}

/// Creates a world in which each mechanism has one cost.
fn steady(costs: [f64; 3]) -> impl Fn(&str, u64) -> (f64, bool) {
    move |name, _| {
        let n = names().iter().position(|known| *known == name).unwrap();
        (costs[n], false)
    }
}

#[test]
fn the_best_goes_on_whichever_it_is() {
    for best in 0..3 {
        let mut costs = [1.4; 3];
        costs[best] = 1.0;
        assert_eq!(winner(&steady(costs)), names()[best]);
    }
}

#[test]
fn of_those_that_do_not_differ_the_safest_goes_on() {
    assert_eq!(winner(&steady([0.99, 0.985, 1.0])), LAST_RESORT.info().name);
    assert_eq!(winner(&steady([0.9, 1.0, 1.0])), names()[0]);
}

#[test]
fn what_the_worse_ones_cost_is_a_small_part_of_the_file() {
    // Measured ratios to the best mechanism, between files on several machines: docs/benchmarks/planner.md.
    for costs in [[1.0, 1.19, 1.38], [1.19, 1.0, 1.38], [1.0, 1.03, 1.7], [1.0, 1.0, 1.97]] {
        let (_, took) = sail(&mut MechanismContest::between(&turns(FILE)), FILE, &steady(costs));
        let lost = took / FILE as f64 - 1.0;
        assert!(lost < 0.02, "{costs:?}: {lost}");
    }
}

#[test]
fn a_much_slower_mechanism_runs_once() {
    let (log, _) =
        sail(&mut MechanismContest::between(&turns(FILE)), FILE, &steady([1.0, 9.0, 1.2]));
    let slow: u64 = log.iter().filter(|(name, _)| *name == names()[1]).map(|(_, b)| b).sum();
    assert_eq!(slow, MIB);
}

#[test]
fn one_interruption_decides_nothing() {
    for hit in 0..6 {
        let piece = hit * MIB..(hit + 1) * MIB;
        let world = |name: &str, at: u64| {
            let usual = if name == names()[1] { 1.0 } else { 1.3 };
            let hit = piece.contains(&at);
            (if hit { usual * 1.45 } else { usual }, false)
        };
        assert_eq!(winner(&world), names()[1], "piece {hit}");
    }
}

#[test]
fn drift_favours_no_mechanism() {
    for slope in [0.05, -0.02] {
        let world = |name: &str, at: u64| {
            let usual = if name == names()[1] { 1.0 } else { 1.25 };
            (usual * (1.0 + slope * (at / MIB).min(10) as f64), false)
        };
        assert_eq!(winner(&world), names()[1]);
    }
}

#[test]
fn pieces_from_the_disk_are_compared_with_such_pieces_only() {
    // The second mechanism is the best for both kinds of bytes. In the first round, it moves only bytes from the disk.
    let world = |name: &str, at: u64| {
        let usual = if name == names()[1] { 1.0 } else { 1.3 };
        if at < MIB { (usual, false) } else { (usual * 10.0, true) }
    };
    let mut contest = MechanismContest::between(&turns(FILE));
    sail(&mut contest, FILE, &world);
    let looks = contest.into_looks();
    assert_eq!((looks.len(), looks[0].chosen, looks[0].from_disk), (1, names()[1], true));
    assert_eq!(looks[0].at, 9 * MIB, "a third round, as the first is of both kinds");
    // The last mechanism is the reference of the ratios.
    assert!(looks[0].tried[1].ratio.unwrap() < 0.8 && looks[0].tried[2].ratio == Some(1.0));
}

#[test]
fn where_nothing_can_be_compared_the_likeliest_goes_on() {
    let world = |_: &str, at: u64| (1.0, (at / MIB).is_multiple_of(2));
    let mut contest = MechanismContest::between(&turns(FILE));
    sail(&mut contest, FILE, &world);
    let look = contest.into_looks().remove(0);
    assert_eq!(look.chosen, names()[0]);
    assert!(look.tried.iter().all(|tried| tried.ratio.is_none()));
}

#[test]
fn a_rate_that_changes_for_good_is_looked_into_and_one_bad_piece_is_not() {
    let changes = |name: &str, at: u64| {
        let cached = at < 40 * MIB;
        let best = if cached { names()[0] } else { names()[1] };
        let usual = if name == best { 1.0 } else { 1.3 };
        (if cached { usual } else { usual * 5.0 }, !cached)
    };
    let len = 4 * FILE;
    let mut contest = MechanismContest::between(&Turns { piece: MIB, ..turns(len) });
    sail(&mut contest, len, &changes);
    let chosen: Vec<_> = contest.into_looks().iter().map(|look| look.chosen).collect();
    assert_eq!(chosen, [names()[0], names()[1]]);

    let hiccup = |name: &str, at: u64| {
        let usual = if name == names()[0] { 1.0 } else { 1.3 };
        (if at / MIB % 20 == 10 { usual * 9.0 } else { usual }, false)
    };
    let mut contest = MechanismContest::between(&Turns { piece: MIB, ..turns(len) });
    sail(&mut contest, len, &hiccup);
    assert_eq!(contest.into_looks().len(), 1);
}

/// Read-ahead makes the source much faster. This change of the rate must not start a comparison.
#[test]
fn a_rate_that_read_ahead_changes_is_not_looked_into() {
    let mut contest = MechanismContest::between(&turns(FILE));
    let steady = steady([10.0; 3]);
    let compared = contest.length();
    sail(&mut contest, compared, &steady);
    for _ in 0..10 {
        contest.forget_rate();
        sail(&mut contest, FILE / 64, &|_, _| (1.0, false));
    }
    assert_eq!(contest.into_looks().len(), 1);
}

#[test]
fn a_rate_that_never_rests_is_looked_into_ever_less_often() {
    let len = 1 << 30;
    let world =
        |_: &str, at: u64| (if (at / (4 * MIB)).is_multiple_of(2) { 1.0 } else { 9.0 }, false);
    let mut contest = MechanismContest::between(&Turns { piece: MIB, ..turns(len) });
    sail(&mut contest, len, &world);
    assert!((2..=8).contains(&contest.into_looks().len()));
}

#[test]
fn a_mechanism_that_refuses_is_out_and_a_single_one_continues() {
    let mut contest = MechanismContest::between(&turns(FILE));
    contest.left("nobody");
    assert_eq!(contest.turn(), Some(names()[0]));
    contest.left(names()[0]);
    assert_eq!(contest.turn(), Some(names()[1]));
    contest.left(names()[1]);
    assert_eq!((contest.turn(), contest.most()), (Some(names()[2]), u64::MAX));
    let (log, _) = sail(&mut contest, FILE, &steady([1.0; 3]));
    assert_eq!(log, [(names()[2], FILE)]);
    contest.left(names()[2]);
    assert_eq!(contest.turn(), None);
    assert!(contest.into_looks().is_empty());
}

#[test]
fn a_winner_that_refuses_ends_it() {
    let mut contest = MechanismContest::between(&turns(FILE));
    sail(&mut contest, FILE / 2, &steady([1.0, 1.4, 1.4]));
    assert_eq!(contest.turn(), Some(names()[0]));
    contest.left(names()[1]);
    assert_eq!(contest.turn(), Some(names()[0]), "a loser's refusal is no news");
    contest.left(names()[0]);
    assert_eq!(contest.turn(), None);
}

#[test]
fn cpu_time_counts_if_the_caller_prefers_it() {
    let mut contest = MechanismContest::between(&Turns { prefer: Prefer::Cpu, ..turns(FILE) });
    while contest.most() < u64::MAX {
        let cheap = contest.turn() == Some(names()[0]);
        let (wall, cpu) = if cheap { (900, 100) } else { (500, 500) };
        let [wall, cpu] = [wall, cpu].map(Duration::from_micros);
        contest.moved(contest.most(), StepCost { wall, cpu, read: 0 });
    }
    assert_eq!(contest.turn(), Some(names()[0]));
}

/// Returns [`Turns`] with a promise: according to the profile, the first mechanism takes one nanosecond per byte.
fn promised(len: u64) -> Turns {
    let cells = names().map(|name| Cell { provisional: true, ..cell(name, len, 1.0) }).to_vec();
    Turns { promise: Some(Promise { ns_per_byte: 1.0, cells }), ..turns(len) }
}

#[test]
fn a_mechanism_as_fast_as_measured_is_not_compared() {
    for kept in [1.0, 1.9, 0.1] {
        let mut contest = MechanismContest::between(&promised(FILE));
        let (log, _) = sail(&mut contest, FILE, &steady([kept, 0.5, 0.5]));
        assert_eq!((log.len(), contest.into_looks().len()), (1, 0), "{kept}");
    }
}

#[test]
fn a_mechanism_much_slower_than_measured_is_replaced_and_the_profile_updated() {
    // The first mechanism is slow from the start, or only later.
    for from in [0, 20 * MIB] {
        let world = |name: &str, at: u64| {
            let is_first = name == names()[0];
            (
                if is_first && at < from {
                    1.0
                } else if is_first {
                    3.5
                } else {
                    1.2
                },
                false,
            )
        };
        let len = 4 * FILE;
        let mut contest = MechanismContest::between(&promised(len));
        let (_, took) = sail(&mut contest, len, &world);
        assert!(took / (len as f64) < 1.2 * 1.15, "{took}");
        let look = contest.into_looks().remove(0);
        assert_eq!(look.chosen, LAST_RESORT.info().name, "of two that do not differ the safer one");
        let seen = |name: &str| look.seen.iter().find(|cell| cell.mechanism == name).expect(name);
        let [fallen, other, last] = names().map(seen);
        assert!((fallen.wall.ratio - 3.5 / 1.2).abs() < 0.01 && fallen.wall.lo < fallen.wall.hi);
        assert!((fallen.ns_per_byte - 3.5).abs() < 0.01);
        assert!((other.wall.ratio - 1.0).abs() < 0.01 && (last.wall.ratio - 1.0).abs() < 1e-9);
        assert!(look.seen.iter().all(|cell| cell.provisional && cell.check().is_ok()));
    }
}

#[test]
fn what_an_earlier_copy_saw_is_looked_at_again_and_forgotten_where_it_is_over() {
    let [first, measured, last] = names();
    let doubted = || Turns { doubted: Some(measured), ..promised(FILE) };
    let looked = |costs| {
        let mut contest = MechanismContest::between(&doubted());
        let (_, took) = sail(&mut contest, FILE, &steady(costs));
        let look = contest.into_looks().remove(0);
        (look.chosen, look.holds.is_some(), look.seen.len(), took / FILE as f64)
    };
    let (chosen, holds, seen, cost) = looked([1.4, 1.0, 1.3]);
    assert_eq!((chosen, holds, seen), (measured, true, 0));
    assert!(cost < 1.03, "{cost}");
    // The result confirms the earlier copy, so there is nothing new to learn.
    let (chosen, holds, seen, _) = looked([1.0, 3.0, 1.4]);
    assert_eq!((chosen, holds, seen), (first, false, 0));
    // The result confirms neither the survey nor the earlier copy, so the profile learns it.
    let (chosen, holds, seen, _) = looked([1.4, 1.4, 1.0]);
    assert_eq!((chosen, holds, seen), (last, false, 3));
}

#[test]
fn where_all_are_slower_than_promised_the_best_goes_on_and_nothing_is_learnt() {
    let mut contest = MechanismContest::between(&promised(FILE));
    let (_, took) = sail(&mut contest, FILE, &steady([3.0, 4.0, 3.6]));
    assert!(took / (FILE as f64 * 3.0) < 1.03);
    let look = contest.into_looks().remove(0);
    assert_eq!((look.chosen, look.seen.len()), (names()[0], 0));
}

#[test]
fn a_promise_about_the_page_cache_says_nothing_of_a_disk() {
    let world = |_: &str, _| (9.0, true);
    let mut contest = MechanismContest::between(&promised(FILE));
    sail(&mut contest, FILE, &world);
    assert!(contest.into_looks().is_empty());
}

#[test]
fn one_slow_piece_breaks_no_promise() {
    let world = |_: &str, at: u64| (if at / MIB == 7 { 9.0 } else { 1.0 }, false);
    let mut contest = MechanismContest::between(&promised(FILE));
    sail(&mut contest, FILE, &world);
    assert!(contest.into_looks().is_empty());
}

#[test]
fn a_measured_one_that_refuses_leaves_the_order_to_the_plan() {
    let mut contest = MechanismContest::between(&promised(FILE));
    contest.left(names()[0]);
    assert_eq!(contest.turn(), None);
}

#[test]
fn what_a_later_look_finds_takes_the_place_of_what_an_earlier_one_did() {
    let len = 8 * FILE;
    // At first, only the first mechanism is slow. Later, either only the others are slow, or all are.
    for (later, learnt) in [([1.0, 6.0, 6.0], 0), ([9.0, 6.0, 6.0], 3)] {
        let [burst, later] = [steady([3.5, 1.2, 1.2]), steady(later)];
        let world =
            |name: &str, at: u64| if at < 3 * FILE { burst(name, at) } else { later(name, at) };
        let mut contest = MechanismContest::between(&promised(len));
        sail(&mut contest, len, &world);
        let looks = contest.into_looks();
        assert!(looks.len() > 1, "{looks:?}");
        let seen: Vec<_> = looks.iter().flat_map(|look| &look.seen).collect();
        assert_eq!(seen.len(), learnt, "{seen:?}");
        assert_eq!(looks.last().unwrap().seen.len(), learnt);
    }
}

#[test]
fn a_promise_is_not_watched_where_a_limit_holds_back() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(32 * MIB).unwrap();
    let last = LAST_RESORT.info().name;
    let request = Request { only: Some(last.to_owned()), ..Request::default() };
    for (limit, looked) in [(None, true), (Some(u64::MAX), false)] {
        let sink = tempfile::tempfile().unwrap();
        let mut transfer = Transfer::between(&file, &sink).unwrap();
        let mut plan = Plan::make(&Facts::of(&transfer), &request, None);
        // No mechanism can reach this rate.
        let promise = Some(Promise { ns_per_byte: 1e-9, cells: Vec::new() });
        let among = vec![last, "splice"];
        plan.turns = Some(Turns { among, piece: 64 << 10, promise, ..turns(32 * MIB) });
        let outcome = Driver { limit }.run(&mut transfer, &plan, &mut ());
        assert_eq!(outcome.report.bytes, 32 * MIB);
        assert_eq!(!outcome.report.looks.is_empty(), looked);
    }
}

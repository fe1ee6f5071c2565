//! Simulated worlds: what a byte costs there is a function of who moves it and where it lies.

use super::*;
use crate::mechanisms::LAST_RESORT;

const MIB: u64 = 1 << 20;
const FILE: u64 = 64 * MIB;

/// Nanoseconds per byte, and whether it comes from a disk.
type World<'w> = dyn Fn(&str, u64) -> (f64, bool) + 'w;

/// Two mechanisms that may take part, and the last resort, which the list calls the safest.
fn names() -> [&'static str; 3] {
    let last = LAST_RESORT.info().name;
    let mut others = MECHANISMS.iter().map(|m| m.info().name).filter(|name| *name != last);
    [others.next().unwrap(), others.next().unwrap(), last]
}

fn turns(len: u64) -> Turns {
    Turns { among: names().to_vec(), piece: len / 64, len, prefer: Prefer::Wall }
}

/// Moves all of it; who moved how much in which order, and the nanoseconds that took.
fn sail(contest: &mut Contest, len: u64, world: &World<'_>) -> (Vec<(&'static str, u64)>, f64) {
    let (mut at, mut log, mut took) = (0, Vec::<(&'static str, u64)>::new(), 0.0);
    while at < len {
        let name = contest.turn().unwrap();
        let bytes = contest.most().min(MIB / 2).min(len - at);
        let (ns, from_disk) = world(name, at);
        let wall = Duration::from_nanos((ns * bytes as f64) as u64);
        let read = if from_disk { bytes } else { 0 };
        contest.moved(bytes, Cost { wall, cpu: wall, read });
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
    let mut contest = Contest::between(&turns(FILE));
    sail(&mut contest, FILE, world);
    contest.into_looks().last().expect("a look").chosen
}

/// A world in which each mechanism has one cost.
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
    // Ratios to the best that were measured between files on several machines: docs/planner.md.
    for costs in [[1.0, 1.19, 1.38], [1.19, 1.0, 1.38], [1.0, 1.03, 1.7], [1.0, 1.0, 1.97]] {
        let (_, took) = sail(&mut Contest::between(&turns(FILE)), FILE, &steady(costs));
        let lost = took / FILE as f64 - 1.0;
        assert!(lost < 0.02, "{costs:?}: {lost}");
    }
}

#[test]
fn who_is_slower_by_far_runs_once() {
    let (log, _) = sail(&mut Contest::between(&turns(FILE)), FILE, &steady([1.0, 9.0, 1.2]));
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
fn what_drifts_favours_nobody() {
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
    // The second one is best in both, and only what lies on the disk is moved by it in the first round.
    let world = |name: &str, at: u64| {
        let usual = if name == names()[1] { 1.0 } else { 1.3 };
        if at < MIB { (usual, false) } else { (usual * 10.0, true) }
    };
    let mut contest = Contest::between(&turns(FILE));
    sail(&mut contest, FILE, &world);
    let looks = contest.into_looks();
    assert_eq!((looks.len(), looks[0].chosen, looks[0].from_disk), (1, names()[1], true));
    assert_eq!(looks[0].at, 9 * MIB, "a third round, as the first is of both kinds");
    // The last one is what the others are compared with.
    assert!(looks[0].tried[1].ratio.unwrap() < 0.8 && looks[0].tried[2].ratio == Some(1.0));
}

#[test]
fn where_nothing_can_be_compared_the_likeliest_goes_on() {
    let world = |_: &str, at: u64| (1.0, (at / MIB).is_multiple_of(2));
    let mut contest = Contest::between(&turns(FILE));
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
    let mut contest = Contest::between(&Turns { piece: MIB, ..turns(len) });
    sail(&mut contest, len, &changes);
    let chosen: Vec<_> = contest.into_looks().iter().map(|look| look.chosen).collect();
    assert_eq!(chosen, [names()[0], names()[1]]);

    let hiccup = |name: &str, at: u64| {
        let usual = if name == names()[0] { 1.0 } else { 1.3 };
        (if at / MIB % 20 == 10 { usual * 9.0 } else { usual }, false)
    };
    let mut contest = Contest::between(&Turns { piece: MIB, ..turns(len) });
    sail(&mut contest, len, &hiccup);
    assert_eq!(contest.into_looks().len(), 1);
}

#[test]
fn a_rate_that_never_rests_is_looked_into_ever_less_often() {
    let len = 1 << 30;
    let world =
        |_: &str, at: u64| (if (at / (4 * MIB)).is_multiple_of(2) { 1.0 } else { 9.0 }, false);
    let mut contest = Contest::between(&Turns { piece: MIB, ..turns(len) });
    sail(&mut contest, len, &world);
    assert!((2..=8).contains(&contest.into_looks().len()));
}

#[test]
fn who_refuses_is_out_and_a_sole_one_goes_on() {
    let mut contest = Contest::between(&turns(FILE));
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
    let mut contest = Contest::between(&turns(FILE));
    sail(&mut contest, FILE / 2, &steady([1.0, 1.4, 1.4]));
    assert_eq!(contest.turn(), Some(names()[0]));
    contest.left(names()[1]);
    assert_eq!(contest.turn(), Some(names()[0]), "a loser's refusal is no news");
    contest.left(names()[0]);
    assert_eq!(contest.turn(), None);
}

#[test]
fn processor_time_counts_for_whom_it_matters() {
    let mut contest = Contest::between(&Turns { prefer: Prefer::Cpu, ..turns(FILE) });
    while contest.most() < u64::MAX {
        let cheap = contest.turn() == Some(names()[0]);
        let (wall, cpu) = if cheap { (900, 100) } else { (500, 500) };
        let [wall, cpu] = [wall, cpu].map(Duration::from_micros);
        contest.moved(contest.most(), Cost { wall, cpu, read: 0 });
    }
    assert_eq!(contest.turn(), Some(names()[0]));
}

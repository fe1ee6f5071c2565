use super::*;
use crate::profile::{Load, Ratio, SinkState};

fn measured(name: &'static str, ratio: f64, noise: f64) -> Candidate {
    let wall = Ratio { ratio, lo: ratio, hi: ratio };
    let evidence = Evidence {
        tuning: Tuning::default(),
        wall,
        cpu: wall,
        noise,
        ns_per_byte: 1.0,
        memory: None,
        at: String::new(),
        sessions: 3,
        rounds: 9,
        load: Load::Idle,
        sink_state: SinkState::Fresh,
        by_reader: Vec::new(),
    };
    Candidate { name, fits: Ok(()), prior: Prior::NONE, evidence: Some(evidence) }
}

fn guessed(name: &'static str, guess: u8) -> Candidate {
    let prior = Prior { guess, ..Prior::NONE };
    Candidate { name, fits: Ok(()), prior, evidence: None }
}

fn order(candidates: Vec<Candidate>) -> Vec<&'static str> {
    rank(candidates, Prefer::Wall).into_iter().map(|verdict| verdict.mechanism).collect()
}

#[test]
fn of_tied_candidates_the_earlier_is_chosen_if_little_is_lost() {
    for (cost, is_first) in [(1.04, true), (0.5, true), (1.1, false)] {
        let order = order(vec![measured("safe", cost, 0.2), measured("fast", 1.0, 0.2)]);
        assert_eq!(order[0] == "safe", is_first, "{cost}: {order:?}");
    }
    // If the noise is small, even small differences count.
    assert_eq!(order(vec![measured("safe", 1.04, 0.03), measured("fast", 1.0, 0.03)])[0], "fast");
}

#[test]
fn a_tie_is_said_up_to_the_noise_and_a_slower_one_by_how_much() {
    let ranked = rank(
        vec![measured("a", 1.0, 0.2), measured("b", 1.15, 0.2), measured("c", 1.5, 0.2)],
        Prefer::Wall,
    );
    let [a, b, c] = &ranked[..] else { panic!("{ranked:?}") };
    assert_eq!(a.judgement, Judgement::Chosen { why: "fastest measured".to_owned() });
    assert_eq!(b.judgement, Judgement::Tie);
    assert_eq!(c.judgement, Judgement::Slower { by: 1.5 });
}

#[test]
fn candidates_with_overlapping_intervals_are_not_called_slower() {
    let wide = |name, ratio, lo, hi| {
        let mut candidate = measured(name, ratio, 0.03);
        candidate.evidence.as_mut().unwrap().wall = Ratio { ratio, lo, hi };
        candidate
    };
    let all = vec![wide("a", 1.0, 0.9, 1.2), wide("b", 5.43, 1.1, 27.0), wide("c", 2.0, 1.5, 2.5)];
    let said: Vec<_> = rank(all, Prefer::Wall)
        .into_iter()
        .map(|verdict| (verdict.mechanism, verdict.judgement))
        .collect();
    // The order follows the medians, even if no difference was shown.
    assert_eq!(said[1], ("c", Judgement::Slower { by: 2.0 }));
    assert_eq!(said[2], ("b", Judgement::Tie));
}

/// Returns a candidate that was measured with two readers: their ratios of wall time, and the ratio
/// of CPU time.
fn by_readers(name: &'static str, walls: [f64; 2], cpu: f64) -> Candidate {
    let [first, second] = walls.map(|wall| measured(name, wall, 0.03).evidence.unwrap());
    let middle = (walls[0] * walls[1]).sqrt();
    let mut both = measured(name, middle, 0.03);
    let evidence = both.evidence.as_mut().unwrap();
    evidence.wall = Ratio { ratio: middle, lo: walls[0].min(walls[1]), hi: walls[0].max(walls[1]) };
    evidence.cpu = Ratio { ratio: cpu, lo: cpu, hi: cpu };
    evidence.by_reader = vec![first, second];
    both
}

#[test]
fn what_flips_between_two_readers_is_a_tie_that_goes_by_processor_time() {
    // sendfile is slower with the first reader and faster with the second. A third mechanism is
    // slower with both.
    let ranked = rank(
        vec![
            by_readers("read-write", [1.0, 1.0], 1.0),
            by_readers("sendfile", [1.5, 0.6], 0.4),
            by_readers("slow", [2.0, 1.9], 0.1),
        ],
        Prefer::Wall,
    );
    let [first, second, third] = &ranked[..] else { panic!("{ranked:?}") };
    assert_eq!((first.mechanism, second.mechanism), ("sendfile", "read-write"));
    let why = "least CPU time (the fastest method depends on how much the reader reads at a time)";
    assert_eq!(first.judgement, Judgement::Chosen { why: why.to_owned() });
    assert_eq!(second.judgement, Judgement::Tie);
    assert!(matches!(third.judgement, Judgement::Slower { .. }), "{third:?}");
    // If both readers lead to the same order, wall time decides, whatever the CPU time is.
    let agreed =
        vec![by_readers("read-write", [1.0, 1.0], 0.2), by_readers("sendfile", [0.7, 0.8], 0.9)];
    let ranked = rank(agreed, Prefer::Wall);
    assert_eq!(ranked[0].mechanism, "sendfile");
    assert_eq!(ranked[0].judgement, Judgement::Chosen { why: "fastest measured".to_owned() });
}

#[test]
fn the_measured_come_first_by_cost_then_the_guesses_then_the_unfit() {
    let unfit = Candidate { fits: Err(Unfit::because("no")), ..measured("unfit", 0.1, 0.0) };
    let clone =
        Candidate { prior: Prior { saves_work: true, ..Prior::NONE }, ..guessed("saves work", 0) };
    let candidates = vec![
        unfit,
        guessed("doubtful", 2),
        guessed("likely", 1),
        measured("slowest", 3.0, 0.0),
        measured("slow", 2.0, 0.0),
        measured("best", 1.0, 0.0),
        clone,
    ];
    let expected = ["saves work", "best", "slow", "slowest", "likely", "doubtful", "unfit"];
    assert_eq!(order(candidates), expected);
}

#[test]
fn what_was_measured_of_an_unfit_candidate_decides_nothing() {
    let unfit = Candidate { fits: Err(Unfit::because("no")), ..measured("unfit", 0.1, 0.0) };
    let ranked = rank(vec![unfit, measured("fit", 1.0, 0.0)], Prefer::Wall);
    assert_eq!(ranked[0].mechanism, "fit");
    assert_eq!(ranked[1].judgement, Judgement::Unfit { reason: "no".to_owned() });
    assert!(ranked[1].evidence.is_none());
}

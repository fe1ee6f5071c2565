//! Every kind of check on simulated runs: a check that holds, fails, is undecided, or cannot run.

use crate::planted;

use thalweg_lab::arms::ProbeFinding;
use thalweg_lab::study::{
    claims,
    file::StudyFile,
    result::{
        ArmResult, ClaimResult,
        ClaimVerdict::{self, Contradicted, NotRunnable, Reproduced, Undecided},
        Condition, Missing, ProbeResult, ProbeSession, StudyResult,
    },
};
use thalweg_measure::load::BackgroundLoad;

use planted::{simulated, simulated::World};

const HEAD: &str = r#"
schema = 1
id = "test"
title = "checks"
summary = "every kind of check"
[source]
title = "none"
[[cell]]
name = "c"
sizes = ["1KiB", "1MiB"]
loads = ["idle", "busy"]
arms = ["a", "b", "c"]
[[arm]]
name = "a"
work = "copy"
[[arm]]
name = "b"
work = "copy"
[[arm]]
name = "c"
work = "copy"
[[claim]]
id = "1"
kind = "ratio"
text = "as checked"
[[claim.check]]
"#;

/// Returns the cost of an arm in seconds: 0.01 for a, 0.03 for c, and for b 0.02 at 1 KiB and 0.005
/// at 1 MiB. Under load all costs double.
fn cost(arm: &str, place: &Condition) -> f64 {
    let small = place.size == "1KiB";
    let own = match (arm, small) {
        ("a", _) => 1.0,
        ("b", true) => 2.0,
        ("b", false) => 0.5,
        _ => 3.0,
    };
    own * if place.load == BackgroundLoad::Busy { 0.02 } else { 0.01 }
}

fn simulate(check: &str) -> (StudyFile, StudyResult) {
    let study = planted::study(&format!("{HEAD}{check}"));
    let world = World { sigma: 0.02, sessions: 0.005, ..World::default() };
    let result = simulated::run(&study, (6, 10), (world, 7), &cost);
    (study, result)
}

fn claim(check: &str) -> ClaimResult {
    simulate(check).1.claims.remove(0)
}

#[track_caller]
fn says(check: &str, verdict: ClaimVerdict) -> ClaimResult {
    let claim = claim(check);
    assert_eq!(claim.verdict, verdict, "{check}: {}", claim.reason);
    assert!(!claim.reason.is_empty());
    claim
}

#[test]
fn ratios() {
    let at = "test = \"ratio\"\narms = [\"b\", \"a\"]\nat = { cell = \"c\", size = \"1KiB\" }\n";
    let claim = says(&format!("{at}within = [1.8, 2.2]"), Reproduced);
    assert!((claim.measured.unwrap() - 2.0).abs() < 0.1 && claim.reason.contains("b to a"));
    says(&format!("{at}within = [2.5, inf]"), Contradicted);
    says(&format!("{at}within = [2.0, inf]"), Undecided);
}

#[test]
fn means_over_sizes() {
    let mean = "test = \"mean-ratio\"\narms = [\"b\", \"a\"]\nat = { cell = \"c\" }\n";
    let claim = says(&format!("{mean}within = [1.1, 1.4]"), Reproduced);
    assert!((claim.measured.unwrap() - 1.25).abs() < 0.05, "{:?}", claim.measured);
    says(&format!("{mean}within = [0.0, 0.4]"), Contradicted);
}

#[test]
fn a_mean_over_sizes_is_of_one_session_and_never_of_two() {
    let mean = "test = \"mean-ratio\"\narms = [\"b\", \"a\"]\nat = { cell = \"c\" }\n\
                within = [1.1, 1.4]\n";
    let (study, mut result) = simulate(mean);
    // The first session lacks b at 1 KiB. At 1 MiB, its costs of b are a hundred times as high.
    for arm in result.arms.iter_mut().filter(|arm| arm.name == "b") {
        if arm.place.size == "1KiB" {
            arm.sessions.remove(0);
        } else {
            arm.sessions[0].samples.iter_mut().for_each(|taken| taken.sample.wall *= 100);
        }
    }
    let claim = claims::judge(&study, &result).remove(0);
    assert_eq!(claim.verdict, Reproduced, "{}", claim.reason);
    result.arms.iter_mut().filter(|arm| arm.place.size == "1KiB").for_each(|arm| {
        arm.sessions.retain(|session| session.session == 1);
    });
    assert_eq!(claims::judge(&study, &result)[0].verdict, Undecided, "of one session");
}

#[test]
fn loads() {
    let load = "test = \"load-ratio\"\narm = \"a\"\nat = { cell = \"c\", size = \"1KiB\" }\n\
                loads = [\"busy\", \"idle\"]\n";
    says(&format!("{load}within = [1.8, 2.2]"), Reproduced);
    says(&format!("{load}within = [0.0, 1.1]"), Contradicted);
}

#[test]
fn rows_of_a_table_are_checked_one_by_one() {
    let rows =
        "test = \"rows\"\narms = [\"b\", \"a\"]\nat = { cell = \"c\" }\nwithin = [0.8, 1.25]\n";
    let claim =
        says(&format!("{rows}published = {{ \"1KiB\" = 2.1, \"1MiB\" = 0.5 }}"), Reproduced);
    assert_eq!(claim.evidence.len(), 2);
    let claim =
        says(&format!("{rows}published = {{ \"1KiB\" = 2.1, \"1MiB\" = 2.0 }}"), Contradicted);
    assert!(claim.reason.contains("1MiB"), "{}", claim.reason);
    assert!(!claim.reason.contains("did not measure"), "{}", claim.reason);
    let (study, mut result) =
        simulate(&format!("{rows}published = {{ \"1KiB\" = 9.9, \"1MiB\" = 0.5 }}"));
    result.arms.retain(|arm| arm.place.size == "1KiB");
    let claim = claims::judge(&study, &result).remove(0);
    assert_eq!(claim.verdict, Contradicted);
    let left_out = "(this run did not measure 1 more: 1MiB)";
    assert!(claim.reason.contains(left_out), "{}", claim.reason);
}

#[test]
fn existence() {
    let some = "test = \"somewhere\"\narms = [\"b\", \"a\"]\ncells = [\"c\"]\n";
    let claim = says(&format!("{some}within = [0.0, 0.97]"), Reproduced);
    assert!(claim.reason.contains("in 2 of 4 places"), "{}", claim.reason);
    says(&format!("{some}within = [5.0, inf]"), Contradicted);
    says(
        "test = \"opposite\"\narms = [\"b\", \"a\"]\ncells = [\"c\"]\naround = [0.97, 1.03]",
        Reproduced,
    );
    says(
        "test = \"opposite\"\narms = [\"c\", \"a\"]\ncells = [\"c\"]\naround = [0.97, 1.03]",
        Contradicted,
    );
}

#[test]
fn the_best_of_others() {
    let best = |arm: &str, rivals: &str, within: &str| {
        format!(
            "test = \"against-best\"\narm = {arm:?}\nrivals = {rivals}\ncells = [\"c\"]\n\
             within = {within}\n"
        )
    };
    let claim = says(&best("a", "[\"c\"]", "[0.0, 1.1]"), Reproduced);
    assert_eq!(claim.evidence.len(), 4, "two sizes under two loads");
    // At 1 MiB, b takes half the time of a, so a is not the best, whatever the other rivals take.
    let claim = says(&best("a", "[\"c\", \"b\"]", "[0.0, 1.1]"), Contradicted);
    assert!(claim.reason.contains("a to b, clock, c 1MiB"), "{}", claim.reason);
    assert!((claim.measured.unwrap() - 2.0).abs() < 0.1, "{:?}", claim.measured);
    let small = claim.evidence.iter().find(|one| one.text.contains("1KiB")).unwrap();
    assert_eq!((small.verdict, small.text.contains("a to b")), (Reproduced, true));
    says(&best("b", "[\"a\", \"c\"]", "[0.0, 2.0]"), Undecided);
    // A rival that cannot run is ignored.
    let (study, mut result) = simulate(&best("a", "[\"b\", \"c\"]", "[0.0, 1.1]"));
    let absent = |result: &mut StudyResult, name: &str| {
        let (gone, rest): (Vec<ArmResult>, _) =
            result.arms.drain(..).partition(|arm| arm.name == name);
        result.arms = rest;
        result.missing.extend(gone.into_iter().map(|arm| Missing {
            arm: arm.name,
            place: arm.place,
            reason: "EPERM".to_owned(),
        }));
    };
    // A rival that ran in a single session might be the best, so the claim is undecided.
    let mut once = result.clone();
    let of_b = once.arms.iter_mut().filter(|arm| arm.name == "b");
    of_b.for_each(|arm| arm.sessions.truncate(1));
    let claim = claims::judge(&study, &once).remove(0);
    assert_eq!(claim.verdict, Undecided, "{}", claim.reason);
    absent(&mut result, "b");
    let claim = claims::judge(&study, &result).remove(0);
    assert_eq!(claim.verdict, Reproduced);
    assert!(claim.reason.contains("1 of 2 not compared: b cannot run here: EPERM"), "{claim:?}");
    absent(&mut result, "a");
    let claim = claims::judge(&study, &result).remove(0);
    assert_eq!(claim.verdict, NotRunnable);
    assert!(claim.reason.contains("EPERM"), "{}", claim.reason);
}

#[test]
fn everywhere() {
    let all = "test = \"everywhere\"\narms = [\"b\", \"a\"]\ncells = [\"c\"]\n";
    let claim = says(&format!("{all}within = [0.4, inf]"), Reproduced);
    assert!(claim.reason.contains("in 4 of 4 places") && claim.reason.contains("1MiB"));
    let claim = says(&format!("{all}within = [0.95, inf]"), Contradicted);
    assert!((claim.measured.unwrap() - 0.5).abs() < 0.05, "the worst place: {}", claim.reason);
    says(&format!("{all}within = [0.5, inf]"), Undecided);
    let claim = says(&format!("{all}within = [0.0, 1.0]"), Contradicted);
    assert!((claim.measured.unwrap() - 2.0).abs() < 0.1, "{}", claim.reason);
}

/// Judges a claim that has a check as published and a check under modern conditions.
fn two_verdicts(published: &str, wider: &str) -> ClaimResult {
    claim(&format!("{published}[[claim.wider]]\n{wider}"))
}

fn at_small(within: &str) -> String {
    format!(
        "test = \"ratio\"\narms = [\"b\", \"a\"]\nat = {{ cell = \"c\", size = \"1KiB\" }}\nwithin = {within}\n"
    )
}

#[test]
fn what_is_asked_more_widely_never_changes_the_verdict_as_published() {
    let (holds, fails) = (at_small("[1.5, 2.5]"), at_small("[3.0, 4.0]"));
    for (published, wider, expected) in [
        (&holds, &fails, (Reproduced, Contradicted)),
        (&fails, &holds, (Contradicted, Reproduced)),
        (&holds, &holds, (Reproduced, Reproduced)),
    ] {
        let claim = two_verdicts(published, wider);
        let wider = claim.wider.as_ref().unwrap();
        assert_eq!((claim.verdict, wider.verdict), expected, "{claim:?}");
        assert_eq!((claim.evidence.len(), wider.evidence.len()), (1, 1));
        assert!(wider.reason.contains("b to a"), "{}", wider.reason);
    }
    assert!(claim(&holds).wider.is_none(), "nothing was asked");
}

#[test]
fn what_cannot_be_run_as_published_may_be_asked_more_widely() {
    let text = HEAD.replace("[[claim.check]]\n", "not_runnable = \"it needs a network card\"\n");
    let study = planted::study(&format!("{text}[[claim.wider]]\n{}", at_small("[1.5, 2.5]")));
    let result = simulated::run(&study, (6, 10), (World::default(), 1), &cost);
    let claim = &result.claims[0];
    assert_eq!(claim.verdict, NotRunnable);
    assert_eq!(claim.wider.as_ref().unwrap().verdict, Reproduced, "{claim:?}");
}

/// An interval that contradicts a single check may be too narrow to do so as one of many checks
/// (Bonferroni).
#[test]
fn one_contradiction_of_many_has_to_be_clear_as_one_of_many() {
    let check = "test = \"ratio\"\narms = [\"c\", \"a\"]\nat = { cell = \"c\", size = \"1KiB\" }\n";
    let many = |count: usize| {
        let fine = format!("[[claim.check]]\n{check}within = [2.0, 4.0]\n").repeat(count - 1);
        format!("{check}within = [0.1, 2.7]\n{fine}")
    };
    let of = |count: usize| {
        let study = planted::study(&format!("{HEAD}{}", many(count)));
        let world = World { sigma: 0.02, sessions: 0.04, ..World::default() };
        simulated::run(&study, (6, 10), (world, 7), &cost).claims.remove(0)
    };
    let alone = of(1);
    assert_eq!(alone.verdict, Contradicted, "{}", alone.reason);
    let (two, many) = (of(2), of(40));
    assert_eq!(many.verdict, Undecided, "{}", many.reason);
    assert!(many.reason.contains("but corrected for 40 comparisons (Bonf"), "{}", many.reason);
    assert!(two.reason.contains("corrected for 2 comparisons (Bonferroni), its"), "{}", two.reason);
    // `somewhere` picks the best of several places, so its interval needs the correction too.
    let some = "test = \"somewhere\"\narms = [\"b\", \"a\"]\ncells = [\"c\"]\nwithin = [0.0, 0.97]";
    let some = claim(some);
    assert_eq!(some.verdict, Reproduced);
    assert!(some.reason.contains("corrected for 4 comparisons (Bonferroni)"), "{}", some.reason);
}

#[test]
fn a_verdict_over_several_places_names_those_that_the_run_left_out() {
    for check in ["everywhere", "somewhere", "mean-ratio"] {
        let places =
            if check == "mean-ratio" { "at = { cell = \"c\" }" } else { "cells = [\"c\"]" };
        let text =
            format!("test = {check:?}\narms = [\"b\", \"a\"]\n{places}\nwithin = [1.8, 2.2]\n");
        let (study, mut result) = simulate(&text);
        assert!(!result.claims[0].reason.contains("did not measure"), "{:?}", result.claims[0]);
        result.arms.retain(|arm| arm.place.size == "1KiB");
        let claim = claims::judge(&study, &result).remove(0);
        let left_out = if check == "mean-ratio" {
            "(this run did not measure 1 more: 1MiB)"
        } else {
            "(this run did not measure 2 more: 1MiB; c 1MiB, busy)"
        };
        assert_eq!(claim.verdict, Reproduced, "{check}: {}", claim.reason);
        assert!(claim.reason.contains(left_out), "{check}: {}", claim.reason);
    }
}

#[test]
fn ranks() {
    let ranks = "test = \"rank-correlation\"\narms = [\"a\", \"b\", \"c\"]\n\
                 places = [{ cell = \"c\", size = \"1KiB\" }, { cell = \"c\", size = \"1MiB\" }]\n";
    // b is second at 1 KiB and first at 1 MiB, which gives a correlation of one half.
    let claim = says(&format!("{ranks}within = [-1.0, 0.8]"), Reproduced);
    assert!((claim.measured.unwrap() - 0.5).abs() < 1e-9);
    assert!(claim.reason.ends_with("(each place with itself between sessions: 1)"), "{claim:?}");
    says(&format!("{ranks}within = [0.9, 1.0]"), Contradicted);
}

#[test]
fn an_arm_that_cannot_run_is_left_out_of_the_ranks_and_named() {
    let four = HEAD.replace("arms = [\"a\", \"b\", \"c\"]", "arms = [\"a\", \"b\", \"c\", \"d\"]");
    let four = four.replace("[[claim]]", "[[arm]]\nname = \"d\"\nwork = \"copy\"\n[[claim]]");
    let ranks = "test = \"rank-correlation\"\narms = [\"a\", \"d\", \"b\", \"c\"]\n\
                 places = [{ cell = \"c\", size = \"1KiB\" }, { cell = \"c\", size = \"1MiB\" }]\n\
                 within = [-1.0, 0.8]\n[[claim.check]]\ntest = \"ratio\"\narms = [\"b\", \"c\"]\n\
                 at = { cell = \"c\", size = \"1KiB\" }\nwithin = [0.6, 0.7]";
    let study = planted::study(&format!("{four}{ranks}"));
    let world = World { sigma: 0.02, sessions: 0.005, ..World::default() };
    let without = |gone: &[&str], place: &str| {
        let mut result = simulated::run(&study, (6, 10), (world, 7), &cost);
        let (missing, arms) = result.arms.into_iter().partition(|arm: &ArmResult| {
            gone.contains(&arm.name.as_str()) && arm.place.size == place
        });
        result.arms = arms;
        let missing: Vec<ArmResult> = missing;
        result.missing = missing
            .into_iter()
            .map(|arm| Missing { arm: arm.name, place: arm.place, reason: "no AVX-512".to_owned() })
            .collect();
        claims::judge(&study, &result).remove(0)
    };
    // An arm is left out of the ranks if it cannot run in one of the two places.
    for place in ["1KiB", "1MiB"] {
        let claim = without(&["d"], place);
        assert_eq!(claim.verdict, Reproduced, "{}", claim.reason);
        assert!((claim.measured.unwrap() - 0.5).abs() < 1e-9, "{claim:?}");
        let said = "of 4 arms only the 3 that run here are ranked: d cannot run here: no AVX-512";
        assert!(claim.reason.contains(said), "{}", claim.reason);
    }
    let claim = without(&["d", "a"], "1KiB");
    assert_eq!(claim.verdict, NotRunnable, "two have no order: {}", claim.reason);
    assert!(claim.reason.ends_with("; 1 of 2 checks hold"), "{}", claim.reason);
}

#[test]
fn a_correlation_is_not_called_low_where_no_benchmark_agrees_with_itself() {
    // All three arms have equal costs, so chance decides their order in every session.
    let ranks = "test = \"rank-correlation\"\narms = [\"a\", \"b\", \"c\"]\n\
                 places = [{ cell = \"c\", size = \"1KiB\" }, { cell = \"c\", size = \"1MiB\" }]\n";
    let study = planted::study(&format!("{HEAD}{ranks}within = [-1.0, 0.8]"));
    let world = World { sigma: 0.05, sessions: 0.05, ..World::default() };
    for seed in 1..6 {
        let result = simulated::run(&study, (30, 10), (world, seed), &|_, _| 0.01);
        let claim = &result.claims[0];
        assert_eq!(claim.verdict, Undecided, "{}", claim.reason);
        assert!(claim.reason.contains("cannot show a higher correlation"), "{}", claim.reason);
    }
}

#[test]
fn probes_must_say_the_same_in_every_session() {
    let probe = "test = \"probe\"\nprobe = \"answer\"\nwithin = [65536.0, 65536.0]\n";
    let (study, mut result) = simulate(probe);
    assert_eq!(result.claims[0].verdict, Undecided, "nobody asked it");
    let mut judge = |found: &[Result<f64, &str>]| {
        let sessions = found.iter().enumerate().map(|(session, found)| ProbeSession {
            session,
            finding: found
                .ok()
                .map(|n| ProbeFinding { numbers: vec![n], text: "returned".to_owned() }),
            missing: found.err().map(str::to_owned),
        });
        result.probes = vec![ProbeResult {
            claim: "1".to_owned(),
            check: 0,
            probe: "answer".to_owned(),
            with: None,
            sessions: sessions.collect(),
        }];
        claims::judge(&study, &result).remove(0)
    };
    assert_eq!(judge(&[Ok(65536.0), Ok(65536.0)]).verdict, Reproduced);
    assert_eq!(judge(&[Ok(4096.0), Ok(4096.0)]).verdict, Contradicted);
    assert_eq!(judge(&[Ok(4096.0), Ok(65536.0)]).verdict, Undecided);
    assert_eq!(judge(&[Ok(65536.0)]).verdict, Undecided);
    let claim = judge(&[Err("EPERM"), Err("EPERM")]);
    assert_eq!(claim.verdict, NotRunnable);
    assert!(claim.reason.contains("EPERM"), "{}", claim.reason);
}

#[test]
fn a_probe_is_found_by_what_it_was_asked_wherever_its_check_stands_now() {
    let asked = |n: usize, list: &str| {
        format!(
            "[[claim.{list}]]\ntest = \"probe\"\nprobe = \"answer\"\nwithin = [{n}, {n}]\nwith = {{ n = {n} }}\n"
        )
    };
    let text = HEAD.replace("[[claim.check]]\n", "");
    let study = planted::study(&format!("{text}{}{}", asked(2, "check"), asked(1, "wider")));
    let mut result = simulated::run(&study, (2, 2), (World::default(), 1), &cost);
    let found = |check: usize, n: u8| ProbeResult {
        claim: "1".to_owned(),
        check,
        probe: "answer".to_owned(),
        with: Some(toml::Table::from_iter([("n".to_owned(), i64::from(n).into())])),
        sessions: (0..2)
            .map(|session| ProbeSession {
                session,
                finding: Some(ProbeFinding { numbers: vec![f64::from(n)], text: String::new() }),
                missing: None,
            })
            .collect(),
    };
    // When the probes ran, the study had these two checks in the opposite order.
    result.probes = vec![found(0, 1), found(1, 2)];
    let claim = claims::judge(&study, &result).remove(0);
    assert_eq!((claim.verdict, claim.wider.unwrap().verdict), (Reproduced, Reproduced));
}

#[test]
fn all_of_a_claims_checks_must_hold() {
    let check = |size: &str, within: &str| {
        format!(
            "test = \"ratio\"\narms = [\"b\", \"a\"]\nat = {{ cell = \"c\", size = {size:?} }}\nwithin = {within}\n"
        )
    };
    let (holds, fails) = (check("1KiB", "[1.5, 2.5]"), check("1KiB", "[3.0, 4.0]"));
    let open = check("1MiB", "[0.5, 1.0]");
    let both = |a: &str, b: &str| format!("{a}[[claim.check]]\n{b}");
    assert!(says(&both(&holds, &holds), Reproduced).reason.contains("all 2 checks hold"));
    let claim = says(&both(&holds, &fails), Contradicted);
    assert_eq!(claim.evidence[0].verdict, Contradicted, "the one that decided comes first");
    says(&both(&open, &holds), Undecided);
    says(&both(&open, &fails), Contradicted);
    let flipped = format!("{fails}[[claim.flip]]\n{}", check("1MiB", "[0.3, 0.7]"));
    let claim = says(&flipped, Contradicted);
    assert_eq!(claim.flips[0].verdict, Reproduced);
}

#[test]
fn what_cannot_be_checked_at_all_says_why() {
    let text = HEAD.replace("[[claim.check]]\n", "not_runnable = \"it needs a network card\"\n");
    let study = planted::study(&text);
    let result = simulated::run(&study, (3, 3), (World::default(), 1), &cost);
    assert_eq!(result.claims[0].verdict, NotRunnable);
    assert!(result.claims[0].reason.contains("network card"));
}

/// Writes the golden result again. Run it only if the format was changed on purpose.
#[test]
#[ignore = "it writes tests/data/result-1.json"]
fn write_the_golden_result() {
    let check = "test = \"ratio\"\narms = [\"b\", \"a\"]\nat = { cell = \"c\", size = \"1KiB\" }\nwithin = [3.0, inf]\n\
                 [[claim]]\nid = \"2\"\nkind = \"number\"\ntext = \"2 GB/s\"\nnot_runnable = \"absolute\"\n";
    let study = planted::study(&format!("{HEAD}{check}"));
    let world = World { sigma: 0.02, ..World::default() };
    let result = simulated::run(&study, (2, 2), (world, 7), &cost);
    let text = thalweg_lab::study::store::to_text(&result).unwrap();
    std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/result-1.json"), text).unwrap();
}

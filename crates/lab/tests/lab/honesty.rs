//! Tests that the lab is honest: equal arms show no difference, and planted faults are found.

use crate::planted;

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command, time::Duration};
use thalweg_core::Cancelled;
use thalweg_lab::study::{
    result::{ClaimVerdict, StudyResult},
    run::{RunError, RunStage, StudyProgress, run},
    settings::{SAMPLE, Settings},
    store::{self, Loaded},
};
use thalweg_measure::{sample::SampleMetric, stats::RatioVerdict};

use planted::{PROGRAM, really, really_by, settings, simulated, simulated::World, study, text};
use thalweg_testing::{executable, script};

const TWINS: &[(&str, &str)] = &[("a", ""), ("b", "")];

/// The result of this test depends on the machine being idle. The simulated runs below prove the statistics on every
/// machine.
#[test]
#[ignore = "real runs of the same work, which want the machine to themselves: make honesty"]
fn the_same_work_twice_shows_no_difference_in_95_of_100_real_runs() {
    let text = text(TWINS, "64KiB", "");
    let quiet = |_: &usize| {
        let result = really(&text, &settings(4, 8)).unwrap();
        result.ratios.iter().all(|ratio| ratio.verdict == RatioVerdict::NoDifferenceShown)
    };
    let quiet = (0..100).filter(quiet).count();
    println!("no difference shown between the same work in {quiet} of 100 real runs");
    assert!(quiet >= 95, "{quiet} of 100");
}

#[test]
fn the_same_cost_twice_shows_no_difference_in_95_of_100_simulated_runs() {
    let study = study(&text(TWINS, "64KiB", ""));
    let worlds = [
        World { sigma: 0.05, ..World::default() },
        World { sigma: 0.05, sessions: 0.05, ..World::default() },
        World { sigma: 0.1, sessions: 0.02, memory: 0.7, drift: 0.5, outliers: 0.05 },
    ];
    for (shape, world) in worlds.into_iter().enumerate() {
        for sessions in [3, 6, 12] {
            let quiet = (0..200).filter(|seed| {
                let result = simulated::run(&study, (sessions, 10), (world, *seed), &|_, _| 0.02);
                let wall = result.ratios.iter().find(|ratio| ratio.metric == SampleMetric::Wall);
                wall.unwrap().verdict == RatioVerdict::NoDifferenceShown
            });
            let quiet = quiet.count();
            assert!(quiet >= 190, "world {shape}, {sessions} sessions: {quiet} of 200");
        }
    }
}

#[test]
fn a_known_ratio_lies_in_its_interval_nine_times_in_ten() {
    let study = study(&text(TWINS, "64KiB", ""));
    let cost = |arm: &str, _: &_| if arm == "a" { 0.02 } else { 0.026 };
    let worlds = [
        ("plain", World { sigma: 0.05, ..World::default() }),
        ("drift", World { sigma: 0.05, sessions: 0.03, drift: 1.0, ..World::default() }),
        ("outliers", World { sigma: 0.05, sessions: 0.03, outliers: 0.05, ..World::default() }),
        ("wandering", World { sigma: 0.1, sessions: 0.03, memory: 0.8, ..World::default() }),
        ("all", World { sigma: 0.1, sessions: 0.1, memory: 0.6, drift: 0.5, outliers: 0.03 }),
    ];
    for (shape, world) in worlds {
        for sessions in [3, 6, 12] {
            let holds = (0..200).filter(|seed| {
                let result = simulated::run(&study, (sessions, 10), (world, *seed), &cost);
                let shown = result.ratios[0].ratio;
                shown.lo <= 1.3 && 1.3 <= shown.hi
            });
            let share = holds.count() as f64 / 200.0;
            assert!(share >= 0.9, "{shape}, {sessions} sessions: {share}");
        }
    }
}

/// Counts how often a standard run finds a slower arm, in simulated worlds whose true costs are known.
#[test]
fn an_arm_that_is_slower_is_found_the_more_often_the_slower_it_is_and_never_called_faster() {
    let study = study(&text(TWINS, "64KiB", ""));
    let worlds = [
        ("quiet", World { sigma: 0.05, sessions: 0.01, ..World::default() }),
        ("rough", World { sigma: 0.1, sessions: 0.03, memory: 0.6, drift: 0.5, outliers: 0.03 }),
    ];
    // Of 200 runs, at least this many must find a difference of 5, 10 and 30 %.
    for ((shape, world), least) in worlds.into_iter().zip([[0, 150, 196], [0, 60, 190]]) {
        for (slower, least) in [1.05, 1.1, 1.3].into_iter().zip(least) {
            let cost = |arm: &str, _: &_| if arm == "b" { 0.02 * slower } else { 0.02 };
            let (mut found, mut wrong) = (0, 0);
            for seed in 0..200 {
                let result = simulated::run(&study, (6, 15), (world, seed), &cost);
                let wall = result.ratios.iter().find(|ratio| ratio.metric == SampleMetric::Wall);
                match wall.unwrap().verdict {
                    RatioVerdict::Slower => found += 1,
                    RatioVerdict::Faster => wrong += 1,
                    RatioVerdict::NoDifferenceShown => {}
                }
            }
            println!("{shape}: {slower} times the cost is found in {found} of 200 runs");
            assert!(
                found >= least && wrong <= 2,
                "{shape}, {slower}: {found} found, {wrong} wrong"
            );
        }
    }
}

#[test]
fn a_wrong_byte_fails_the_run_and_names_the_arm() {
    let text = text(&[("good", ""), ("bad", "with = { fault = \"byte\" }")], "64KiB", "");
    match really(&text, &settings(2, 2)).unwrap_err() {
        RunError::Wrong { arm, at, session, reason, .. } => {
            assert_eq!((arm.as_str(), session), ("bad", 1));
            assert!(at.contains("64KiB") && reason.contains("byte 32768"), "{at}: {reason}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn memory_that_became_cold_before_a_sample_is_marked_counted_and_kept() {
    let text = text(&[("warm", ""), ("cold", "with = { fault = \"cold\" }")], "8MiB", "");
    let result = really(&text, &settings(2, 8)).unwrap();
    let arm = |name: &str| result.arms.iter().find(|arm| arm.name == name).unwrap();
    // Only marks about faults are counted. Other marks, such as stolen CPU time, come from the machine.
    let became_cold = |name: &str| {
        let marks = arm(name).sessions.iter().flat_map(|session| &session.marks);
        marks.filter(|mark| mark.contains("faults on memory that was warm")).count()
    };
    assert_eq!(became_cold("warm"), 0, "{:?}", arm("warm").sessions);
    let cold = arm("cold");
    assert!(became_cold("cold") >= 2 && cold.marked >= 2, "{:?}", cold.sessions);
    assert!(cold.sessions.iter().all(|s| s.samples.len() >= 8), "none was left out");
}

#[test]
fn a_fork_between_warming_and_a_sample_is_marked_and_a_spawn_is_not() {
    // Returns the numbers of marks: of the arm without a fault, and of the arm that starts a child.
    let became_cold = |fault: &str| {
        let with = format!("with = {{ fault = {fault:?} }}");
        let arms = [("warm", ""), ("starts", with.as_str())];
        let result = really(&text(&arms, "8MiB", ""), &settings(2, 8)).unwrap();
        ["warm", "starts"].map(|name| {
            let arm = result.arms.iter().find(|arm| arm.name == name).unwrap();
            let marks = arm.sessions.iter().flat_map(|session| &session.marks);
            marks.filter(|mark| mark.contains("faults on memory that was warm")).count()
        })
    };
    assert_eq!(became_cold("spawns"), [0, 0]);
    // All memory of the process is copied on write after a fork, so the other arm pays for it too.
    let [warm, forks] = became_cold("forks");
    assert!(forks >= 2 && warm >= 2, "{forks} {warm}");
}

// A ratio that noise of the machine cannot reach.
const BILLION_TIMES: &str = "[[claim]]\nid = \"1\"\nkind = \"ratio\"\ntext = \"it is 1e9 times faster than itself\"\n\
     [[claim.check]]\ntest = \"ratio\"\narms = [\"a\", \"b\"]\nat = { cell = \"cell\" }\nwithin = [0.0, 1e-9]\n";

#[test]
fn a_made_up_claim_is_contradicted_and_one_session_decides_nothing() {
    let text = text(TWINS, "1MiB", BILLION_TIMES);
    let claim = |sessions| really(&text, &settings(sessions, 8)).unwrap().claims.remove(0);
    let claimed = claim(6);
    assert_eq!(claimed.verdict, ClaimVerdict::Contradicted, "{}", claimed.reason);
    assert!(claimed.lo.unwrap() > 1e-9 && claimed.reason.contains("no part"), "{claimed:?}");
    let claimed = claim(1);
    assert_eq!(claimed.verdict, ClaimVerdict::Undecided);
    assert!(claimed.reason.contains("one session"), "{}", claimed.reason);
}

#[test]
fn other_promises_are_said_beside_the_ratio_and_a_broken_promise_is_a_mark() {
    let arms = [
        ("copies", ""),
        ("shares", "with = { fault = \"shares\" }"),
        ("breaks", "with = { fault = \"breaks\" }"),
    ];
    let result = really(&text(&arms, "64KiB", ""), &settings(2, 2)).unwrap();
    let same = |name: &str| result.ratios.iter().find(|r| r.a == name).unwrap().same_promises;
    assert!(!same("shares") && same("breaks"));
    let arm = |name: &str| result.arms.iter().find(|arm| arm.name == name).unwrap();
    assert_eq!(arm("copies").alias.as_deref(), Some("copied"));
    assert_eq!(arm("shares").alias.as_deref(), Some("shared"));
    let marks = |name: &str| arm(name).sessions[0].marks.concat();
    assert!(
        marks("breaks").contains("guarantees a separate copy")
            && !marks("shares").contains("guarantees a")
    );
}

#[test]
fn an_arm_that_fails_leaves_with_its_reason_and_the_others_go_on() {
    let arms = [
        ("absent", "with = { fault = \"absent\" }"),
        ("good", ""),
        ("fails", "with = { fault = \"fails\" }"),
    ];
    let claim = BILLION_TIMES.replace("\"a\", \"b\"", "\"absent\", \"good\"");
    let result = really(&text(&arms, "64KiB", &claim), &settings(2, 8)).unwrap();
    let reasons: Vec<&str> = result.missing.iter().map(|m| m.reason.as_str()).collect();
    assert!(reasons.iter().any(|r| r.contains("not installed")), "{reasons:?}");
    assert!(reasons.iter().any(|r| r.contains("EIO")), "{reasons:?}");
    let good = result.arms.iter().find(|arm| arm.name == "good").unwrap();
    assert!(good.sessions.iter().all(|s| s.samples.len() >= 8));
    assert_eq!(result.claims[0].verdict, ClaimVerdict::NotRunnable);
    assert!(result.claims[0].reason.contains("not installed"), "{}", result.claims[0].reason);
}

#[test]
fn samples_with_unchecked_bytes_are_kept_marked_and_decide_nothing() {
    let arms = [("good", ""), ("fails", "with = { fault = \"fails\" }")];
    let claim = BILLION_TIMES.replace("\"a\", \"b\"", "\"fails\", \"good\"");
    let result = really(&text(&arms, "64KiB", &claim), &settings(2, 8)).unwrap();
    let fails = result.arms.iter().find(|arm| arm.name == "fails").unwrap();
    let taken: usize = fails.sessions.iter().map(|session| session.samples.len()).sum();
    assert!(taken > 0 && fails.marked == taken, "{} of {taken}", fails.marked);
    let marks = fails.sessions.iter().all(|s| s.marks[0].contains("its bytes were not verified"));
    assert!(marks && fails.sessions.iter().all(|s| s.unchecked), "{:?}", fails.sessions[0].marks);
    assert!(result.ratios.is_empty(), "{:?}", result.ratios);
    let claim = &result.claims[0];
    assert_eq!(claim.verdict, ClaimVerdict::NotRunnable, "{}", claim.reason);
    assert!(claim.reason.contains("EIO"), "{}", claim.reason);
}

#[test]
fn a_session_that_dies_says_its_last_words_and_a_missing_program_is_named() {
    let text = text(&[("dies", "with = { fault = \"dies\" }")], "64KiB", "");
    let error = really(&text, &settings(2, 2)).unwrap_err().to_string();
    assert!(error.contains("session 1") && error.contains("out of luck"), "{error}");
    let error = really_by(Path::new("/no/such"), &text, &settings(2, 2)).unwrap_err();
    assert!(error.to_string().contains("/no/such"), "{error}");
}

#[test]
fn a_pause_without_end_can_be_asked_for_and_stopped() {
    let text = text(TWINS, "64KiB", "");
    let paused = std::cell::Cell::new(false);
    let endless = Settings { pause: Duration::MAX, ..settings(3, 2) };
    let stop = || if paused.get() { Err(Cancelled) } else { Ok(()) };
    let folder = tempfile::tempdir().unwrap();
    let loaded = Loaded { study: study(&text), text, path: folder.path().join("test.toml") };
    let mut left = Duration::ZERO;
    let mut watch = |progress: &StudyProgress<'_>| {
        paused.set(progress.place.is_none());
        left = progress.left;
    };
    let (program, at) = (Path::new(PROGRAM), folder.path());
    let mut stage = RunStage { program, at, stop: &stop, watch: &mut watch, unfinished: None };
    let stopped = run(&[loaded], &endless, &mut stage).remove(0).unwrap_err();
    assert!(matches!(stopped, RunError::Cancelled(_)), "{stopped}");
    assert_eq!(left, Duration::MAX);
}

#[test]
fn the_harness_costs_less_than_a_hundredth_of_a_sample_and_says_how_much() {
    // The result has the median of the sessions, so a session that was interrupted does not matter.
    let long = Settings { sample: SAMPLE, ..settings(5, 2) };
    let result = really(&text(TWINS, "64KiB", ""), &long).unwrap();
    let null = result.null_seconds.unwrap();
    let sessions = result.arms.iter().flat_map(|arm| &arm.sessions);
    let samples = sessions.flat_map(|session| &session.samples);
    let shortest = samples.map(|taken| taken.sample.wall_seconds()).fold(f64::MAX, f64::min);
    // Both times are from this machine, so their ratio does not depend on its speed.
    assert!(null > 0.0 && null < shortest / 100.0, "{null} s of {shortest} s");
}

#[test]
fn a_result_survives_its_file_and_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let result = really(&text(TWINS, "64KiB", BILLION_TIMES), &settings(2, 3)).unwrap();
    let path = store::save(&result, folder.path()).unwrap();
    let again = store::load(&path).unwrap();
    let json = |result: &StudyResult| serde_json::to_value(result).unwrap();
    assert_eq!(json(&again), json(&result));
    let text = fs::read_to_string(&path).unwrap();
    // Two more results of one study and one second: every result is kept.
    let [second, third] = [(), ()].map(|()| store::save(&result, folder.path()).unwrap());
    assert!(second.ends_with("test-2.json") && third.ends_with("test-3.json"), "{second:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 6);
    let saved = store::saved(folder.path());
    assert_eq!((saved.len(), saved[0].verdicts.len()), (3, 1));
    assert!(saved.iter().any(|saved| saved.path == path));
    let samples = store::to_text(&result).unwrap();
    let long = samples.lines().map(str::len).max().unwrap();
    assert!(samples.lines().count() < 400 && long < 2000, "a line for each sample: {long}");
    assert!(!text.contains("\"wall\":"), "the samples lie beside it");
}

#[test]
fn every_round_has_every_arm_and_one_of_them_twice() {
    let result = really(&text(TWINS, "64KiB", ""), &settings(2, 5)).unwrap();
    for session in 0..2 {
        let samples = result.arms.iter().flat_map(|arm| &arm.sessions[session].samples);
        let mut rounds = [0; 5];
        samples.for_each(|sample| rounds[sample.round] += 1);
        assert_eq!(rounds, [3; 5]);
    }
    assert!(result.aa.is_some() && result.noise >= 0.03);
    assert_eq!(result.comparisons, 2);
}

#[test]
fn the_user_nobody_can_run_a_study_too() {
    if !rustix::process::geteuid().is_root() {
        return; // Without root, every other test here already runs as an ordinary user.
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("helper");
    executable(Path::new(PROGRAM), &program);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let nobody = folder.path().join("as-nobody");
    let line = "exec setpriv --reuid=65534 --regid=65534 --clear-groups";
    script(&nobody, &format!("{line} {} \"$@\"", program.display()));
    if !Command::new(&nobody).arg("helper").status().is_ok_and(|s| s.code() == Some(2)) {
        return planted::skip("the_user_nobody_can_run_a_study_too", "setpriv does not work here");
    }
    let result = planted::as_nobody(&nobody, &text(TWINS, "64KiB", BILLION_TIMES), &settings(6, 4));
    assert_eq!(result.claims[0].verdict, ClaimVerdict::Contradicted, "{}", result.claims[0].reason);
    // Counters of the machine that the user `nobody` cannot read are not used; getrusage(2) works for every user.
    let cpu = |result: &StudyResult| result.arms.iter().all(|arm| arm.cpu_s_per_gb > 0.0);
    assert!(cpu(&result));
}

#[test]
fn loads_work_beside_the_arms_and_end_with_them() {
    let loads = "loads = [\"idle\", \"busy\", \"quarter\", \"writeback\"]\nsizes";
    let text = text(TWINS, "64KiB", "").replacen("sizes", loads, 1);
    let result = really(&text, &settings(2, 3)).unwrap();
    let alone = std::thread::available_parallelism().is_ok_and(|n| n.get() == 1);
    assert_eq!(result.arms.len(), if alone { 6 } else { 8 }, "{:?}", result.missing);
    assert!(result.missing.iter().all(|m| m.reason.contains("needs a second core")));
    let taken = |name: &str| {
        let arms = result.arms.iter().filter(|arm| arm.place.load.name() == name);
        let samples = arms.flat_map(|arm| &arm.sessions).flat_map(|session| &session.samples);
        samples.count()
    };
    // Two arms in three rounds, each with one arm twice, in two sessions: 2 * 3 * 3 samples.
    assert_eq!([taken("idle"), taken("quarter"), taken("writeback")], [18; 3]);
}

//! Sessions of a later run that are added to a result count like its own.

use crate::planted;

use std::path::Path;
use thalweg_lab::study::{
    extend,
    file::StudyFile,
    result::{ClaimVerdict, Condition, StudyResult},
    store::{self, Loaded},
};

use thalweg_measure::conditions::Conditions;

use planted::{simulated, simulated::World};

const STUDY: &str = r#"
schema = 1
id = "test"
title = "two cells"
summary = "two cells, of which a later run measures one"
[source]
title = "none"
[[cell]]
name = "first"
sizes = ["1KiB"]
arms = ["a", "b"]
[[cell]]
name = "second"
sizes = ["1KiB", "1MiB"]
arms = ["a", "b"]
[[arm]]
name = "a"
work = "copy"
[[arm]]
name = "b"
work = "copy"
[[claim]]
id = "1"
kind = "ratio"
text = "b takes more than a"
[[claim.check]]
test = "ratio"
arms = ["b", "a"]
at = { cell = "second", size = "1KiB" }
within = [1.0, inf]
"#;

fn loaded() -> Loaded {
    Loaded { study: planted::study(STUDY), text: STUDY.to_owned(), path: "test.toml".into() }
}

fn simulate(study: &StudyFile, sessions: usize, seed: u64) -> StudyResult {
    let world = World { sigma: 0.02, sessions: 0.25, ..World::default() };
    let cost = |arm: &str, _: &Condition| if arm == "a" { 0.01 } else { 0.0125 };
    simulated::run(study, (sessions, 5), (world, seed), &cost)
}

/// A run of the second cell only.
fn of_second(mut result: StudyResult) -> StudyResult {
    result.arms.retain(|arm| arm.place.cell == "second");
    result.costs.retain(|cost| cost.place.cell == "second");
    result
}

fn sessions(result: &StudyResult, cell: &str) -> Vec<usize> {
    let arm = result.arms.iter().find(|arm| arm.place.cell == cell).expect("the arm");
    arm.sessions.iter().map(|session| session.session).collect()
}

#[test]
fn an_undecided_claim_is_decided_by_about_as_many_sessions_as_were_estimated() {
    let by = loaded();
    let few = simulate(&by.study, 4, 3);
    assert_eq!(few.claims[0].verdict, ClaimVerdict::Undecided, "{}", few.claims[0].reason);
    let needed = few.claims[0].sessions_needed().expect("an estimate");
    assert!((5..200).contains(&needed), "{needed}");
    assert!(few.claims[0].reason.contains(&format!("about {needed} sessions would decide")));
    let more = of_second(simulate(&by.study, 2 * needed, 4));
    let all = extend::extend(&by, &few, more);
    assert_eq!(all.claims[0].verdict, ClaimVerdict::Reproduced, "{}", all.claims[0].reason);
    assert_eq!(all.claims[0].sessions_needed(), None);
}

#[test]
fn added_sessions_are_numbered_after_the_first_ones_and_change_no_other_cell() {
    let by = loaded();
    let first = simulate(&by.study, 3, 5);
    let more = || of_second(simulate(&by.study, 2, 6));
    let all = extend::extend(&by, &extend::extend(&by, &first, more()), more());
    assert_eq!(sessions(&all, "first"), [0, 1, 2]);
    assert_eq!(sessions(&all, "second"), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(all.protocol.all_sessions(), 7);
    let cells: Vec<_> = all.protocol.extensions.iter().map(|more| more.cells.clone()).collect();
    assert_eq!(cells, [["second"], ["second"]]);
    let of_first = |result: &StudyResult| serde_json::to_string(&result.arms[0]).expect("JSON");
    assert_eq!(of_first(&all), of_first(&first));
    assert_eq!(all.text.expect("its texts").judged, by.hash());
}

#[test]
fn a_cell_that_the_first_run_left_out_is_added_in_the_order_of_the_study() {
    let by = loaded();
    let only_second = of_second(simulate(&by.study, 2, 5));
    let mut first = simulate(&by.study, 2, 6);
    first.arms.retain(|arm| arm.place.cell == "first");
    let all = extend::extend(&by, &only_second, first);
    assert_eq!(all.arms[0].place.cell, "first");
    assert_eq!(sessions(&all, "first"), [2, 3]);
    assert_eq!(sessions(&all, "second"), [0, 1]);
}

#[test]
fn a_replaced_result_names_its_new_samples_and_the_old_file_is_gone() {
    let by = loaded();
    let folder = tempfile::tempdir().expect("a scratch folder");
    let first = simulate(&by.study, 2, 5);
    let path = store::save(&first, folder.path()).expect("saved");
    let all = extend::extend(&by, &first, of_second(simulate(&by.study, 2, 6)));
    store::replace(&path, &all).expect("replaced");
    let again = store::load(&path).expect("loaded");
    assert_eq!(store::csv(&[again]), store::csv(&[all]));
    let names = std::fs::read_dir(path.parent().expect("a folder")).expect("listed");
    let mut names: Vec<_> = names.map(|entry| entry.expect("an entry").file_name()).collect();
    names.sort();
    assert_eq!(names, ["test-2.csv.gz", "test.json"]);
}

#[test]
fn a_result_of_another_study_or_machine_is_refused() {
    let by = loaded();
    let mut result = simulate(&by.study, 2, 5);
    let at = Path::new("/proc");
    let why =
        |result: &StudyResult, pinned: &[usize]| extend::obstacle(&by.study, result, at, pinned);
    let other = why(&result, &[]).expect("an obstacle");
    assert!(other.contains("this machine is"), "{other}");
    result.conditions = serde_json::to_value(Conditions::now(&[at])).expect("conditions");
    assert_eq!(why(&result, &[]), None);
    let pinned = why(&result, &[0]).expect("an obstacle");
    assert!(pinned.contains("not pinned") && pinned.contains("CPUs [0]"), "{pinned}");
    result.conditions =
        serde_json::to_value(Conditions::now(&[Path::new("/dev")])).expect("conditions");
    let elsewhere = why(&result, &[]).expect("an obstacle");
    assert!(elsewhere.contains("--at is on proc"), "{elsewhere}");
    result.conditions["file_systems"].take();
    let unknown = why(&result, &[]).expect("an obstacle");
    assert!(unknown.contains("measured on an unknown file system"), "{unknown}");
    result.study = "002".to_owned();
    let study = why(&result, &[]).expect("an obstacle");
    assert!(study.contains("study 002, not of test"), "{study}");
}

#[test]
fn a_run_is_added_once() {
    let by = loaded();
    let first = simulate(&by.study, 2, 5);
    let mut more = of_second(simulate(&by.study, 2, 6));
    assert!(extend::has_sessions_of(&first, &more));
    // Two short runs may begin in the same second.
    more.protocol.command.push_str(" --seed 6");
    assert!(!extend::has_sessions_of(&first, &more));
    let all = extend::extend(&by, &first, more.clone());
    assert!(extend::has_sessions_of(&all, &more) && extend::has_sessions_of(&all, &first));
}

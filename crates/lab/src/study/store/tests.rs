//! Tests of result names, and of results that later versions must still read, including those in the repository.

use super::*;
use crate::{
    arms::CATALOGUE,
    study::{
        evaluation,
        result::{ClaimResult, StudyResult},
    },
};

/// A result as the first version wrote it.
const GOLDEN: &str = include_str!("../../../tests/data/result-1.json");

#[test]
fn a_result_of_the_first_version_is_read_and_written_back_the_same() {
    let result = parse_result(GOLDEN.as_bytes()).unwrap();
    assert_eq!((result.study.as_str(), result.claims.len()), ("test", 2));
    assert_eq!(result.claims[0].verdict, ClaimVerdict::Contradicted);
    assert_eq!(to_text(&result).unwrap(), GOLDEN);
}

#[test]
fn a_result_that_would_command_a_terminal_is_not_listed() {
    let folder = tempfile::tempdir().unwrap();
    let date = folder.path().join("machine/date");
    fs::create_dir_all(&date).unwrap();
    let listed = |preset: &str| {
        let text =
            GOLDEN.replacen("\"preset\": \"simulated\"", &format!("\"preset\": {preset}"), 1);
        fs::write(date.join("test.json"), text).unwrap();
        saved(folder.path()).len()
    };
    assert_eq!(listed("\"quick\""), 1);
    assert_eq!(listed("\"quick\\u001b[2J\""), 0);
}

#[test]
fn another_schema_and_no_json_are_refused() {
    let newer = GOLDEN.replacen("\"schema\": 1", "\"schema\": 9", 1);
    assert!(parse_result(newer.as_bytes()).unwrap_err().contains("schema 9"));
    assert!(parse_result(b"{\"study\":").is_err());
    let negative = GOLDEN.replacen("\"wall\":0", "\"wall\":-0", 1);
    assert_ne!(negative, GOLDEN);
    assert!(parse_result(negative.as_bytes()).is_err());
}

#[test]
fn a_machines_name_has_its_kernel_and_no_letters_that_a_path_has_not() {
    let name = machine_name();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c)), "{name}");
    assert!(!name.is_empty() && name.len() <= 80 && !name.starts_with('.'), "{name}");
    assert!(host.len() < 4 || !name.contains(&host.to_ascii_lowercase()), "{name}");
}

#[test]
fn a_folder_of_studies_names_each_file_that_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("1.toml"), "id = \n").unwrap();
    fs::write(folder.path().join("2.txt"), "nothing").unwrap();
    let all = Loaded::folder(folder.path(), &CATALOGUE).unwrap();
    assert_eq!(all.len(), 1);
    let error = all[0].as_ref().unwrap_err().to_string();
    assert!(error.contains("1.toml") && error.contains("line 1"), "{error}");
    assert!(Loaded::folder(&folder.path().join("none"), &CATALOGUE).is_err());
}

/// If claims were changed on purpose, `thalweg study --rejudge studies/results` writes new verdicts to the results.
#[test]
fn every_verdict_that_is_kept_follows_from_the_samples_beside_it() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies");
    let studies = Loaded::folder(&folder, &CATALOGUE).unwrap();
    let studies: Vec<Loaded> = studies.into_iter().map(Result::unwrap).collect();
    let all = saved(&folder.join("results"));
    assert!(all.len() >= 10, "{} results", all.len());
    for kept in all {
        let found = load(&kept.path).unwrap();
        let by = studies.iter().find(|loaded| loaded.study.id == kept.study).unwrap();
        let again = evaluation::judge_again(&by.study, &found);
        let name = kept.path.display();
        let hint = "`thalweg study --rejudge` judges it again";
        assert_eq!(verdicts(&again), verdicts(&found), "{name}: {hint}");
        let (now, then) = (numbers(&again), numbers(&found));
        let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-9 * a.abs().max(b.abs());
        assert!(now.len() == then.len() && now.iter().zip(&then).all(near), "{name}: {hint}");
    }
}

fn verdicts(result: &StudyResult) -> Vec<(&str, ClaimVerdict, Option<ClaimVerdict>)> {
    let wider = |claim: &ClaimResult| claim.wider.as_ref().map(|wider| wider.verdict);
    let claims = result.claims.iter();
    claims.map(|claim| (claim.id.as_str(), claim.verdict, wider(claim))).collect()
}

#[test]
fn a_rejudged_result_keeps_its_samples_and_names_both_texts_of_its_study() {
    let folder = tempfile::tempdir().unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies");
    let kept = saved(&here.join("results")).into_iter().find(|kept| kept.study == "100").unwrap();
    let path = folder.path().join("100.json");
    for extension in ["json", "csv.gz"] {
        let bytes = fs::read(kept.path.with_extension(extension)).unwrap();
        fs::write(path.with_extension(extension), bytes).unwrap();
    }
    let mut by = Loaded::read(&here.join("100-cp-copy-file-range.toml"), &CATALOGUE).unwrap();
    let harder = by.text.replace("within = [0.0, 1.03]", "within = [0.0, 0.1]");
    assert!(harder != by.text, "there is such a range");
    by.study = StudyFile::parse(&harder, &CATALOGUE).unwrap();
    by.text = harder;
    let [before, after] = rejudge(&path, &by).unwrap();
    assert_ne!(verdicts(&before), verdicts(&after));
    let again = load(&path).unwrap();
    assert_eq!(verdicts(&again), verdicts(&after));
    assert_eq!(again.text.unwrap().judged, by.hash());
    assert_eq!(csv(&[before]), csv(&[after]), "what was measured stays");
    rejudge(&folder.path().join("none.json"), &by).unwrap_err();
}

/// Simulates a machine whose logarithms differ in the last digits.
#[test]
fn figures_that_differ_in_their_last_digits_are_written_as_they_were_more_widely_too() {
    let folder = tempfile::tempdir().unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies");
    let has_wider = |kept: &SavedResult| kept.tallies.wider.all > kept.tallies.wider.not_runnable;
    let kept = saved(&here.join("results")).into_iter().find(has_wider).expect("some are");
    let path = folder.path().join("kept.json");
    let samples = kept.path.with_extension("csv.gz");
    let beside = folder.path().join(samples.file_name().unwrap());
    fs::write(beside, fs::read(&samples).unwrap()).unwrap();
    let mut result: serde_json::Value =
        serde_json::from_slice(&fs::read(&kept.path).unwrap()).unwrap();
    let mut nudged = 0;
    for claim in result["claims"].as_array_mut().unwrap() {
        let figures = claim.pointer_mut("/wider/evidence/0/measured");
        if let Some((figure, was)) = figures.and_then(|f| f.as_f64().map(|was| (f, was))) {
            *figure = (was * (1.0 + 1e-12)).into();
            nudged += 1;
        }
    }
    assert!(nudged > 0);
    fs::write(&path, serde_json::to_vec(&result).unwrap()).unwrap();
    let studies = Loaded::folder(&here, &CATALOGUE).unwrap();
    let mut studies = studies.into_iter().filter_map(Result::ok);
    let by = studies.find(|loaded| loaded.study.id == kept.study).unwrap();
    let [before, after] = rejudge(&path, &by).unwrap();
    let measured_of = |result: &StudyResult| -> Vec<Option<f64>> {
        let wider = result.claims.iter().filter_map(|claim| claim.wider.as_ref());
        wider.flat_map(|wider| &wider.evidence).map(|one| one.measured).collect()
    };
    assert_eq!(measured_of(&before), measured_of(&after));
}

/// Returns all figures that are computed from samples. The last digits of a logarithm differ between CPUs.
fn numbers(result: &StudyResult) -> Vec<f64> {
    let ratios = result.ratios.iter().flat_map(|r| [r.ratio.ratio, r.ratio.lo, r.ratio.hi]);
    let claims = result.claims.iter().flat_map(|claim| [claim.measured, claim.lo, claim.hi]);
    ratios.chain(claims.flatten()).chain([result.noise]).collect()
}

#[test]
fn a_result_whose_samples_are_missing_or_damaged_is_refused_by_the_name_of_their_file() {
    let folder = tempfile::tempdir().unwrap();
    let result = parse_result(GOLDEN.as_bytes()).unwrap();
    let path = save(&result, folder.path()).unwrap();
    let csv = path.with_extension("csv.gz");
    assert_eq!(to_text(&load(&path).unwrap()).unwrap(), GOLDEN);
    let whole = fs::read(&csv).unwrap();
    let refused = |bytes: Option<&[u8]>| {
        match bytes {
            Some(bytes) => fs::write(&csv, bytes).unwrap(),
            None => fs::remove_file(&csv).unwrap(),
        }
        let error = load(&path).unwrap_err().to_string();
        assert!(error.contains("test.csv.gz"), "{error}");
        error
    };
    refused(Some(&whole[..whole.len() / 2]));
    refused(Some(b"study,arm\n"));
    let other = samples::csv(std::slice::from_ref(&result)).replacen("test,", "test,another ", 2);
    let error = refused(Some(&results::compressed(&other).unwrap()));
    assert!(error.contains("line 2 is not a sample of this result"), "{error}");
    refused(None);
}

#[test]
fn a_result_with_its_samples_names_no_file_to_remove() {
    let folder = tempfile::tempdir().unwrap();
    let victim = folder.path().join("victim");
    fs::write(&victim, "of another program").unwrap();
    let path = folder.path().join("results/test.json");
    fs::create_dir(path.parent().unwrap()).unwrap();
    let crafted = GOLDEN.replacen("\"schema\": 1", "\"schema\": 1, \"samples\": \"../victim\"", 1);
    assert_ne!(crafted, GOLDEN);
    fs::write(&path, crafted).unwrap();
    let result = load(&path).unwrap();
    replace(&path, &result).unwrap();
    assert!(victim.exists());
    assert_eq!(csv(&[load(&path).unwrap()]), csv(&[result]));
}

#[test]
fn samples_of_an_earlier_version_are_read_without_the_columns_that_came_later() {
    let result = parse_result(GOLDEN.as_bytes()).unwrap();
    let csv = csv(std::slice::from_ref(&result));
    let shorter = |line: &str| line.rsplitn(3, ',').last().unwrap().to_owned() + "\n";
    let older: String = csv.lines().map(shorter).collect();
    let without = || {
        let mut empty = result.clone();
        let sessions = empty.arms.iter_mut().flat_map(|arm| &mut arm.sessions);
        sessions.for_each(|session| session.samples.clear());
        empty
    };
    let mut again = without();
    put_back(&older, &mut again).unwrap();
    assert_eq!(to_text(&again).unwrap(), GOLDEN);
    // A header with all columns does not match lines of an earlier version.
    let (head, _) = csv.split_once('\n').unwrap();
    let (_, lines) = older.split_once('\n').unwrap();
    let error = put_back(&format!("{head}\n{lines}"), &mut without()).unwrap_err();
    assert!(error.contains("line 2 is not a sample"), "{error}");
}

#[test]
fn a_result_of_the_same_second_gets_a_number_and_nothing_unfinished_stays() {
    let folder = tempfile::tempdir().unwrap();
    let result = parse_result(GOLDEN.as_bytes()).unwrap();
    let first = save(&result, folder.path()).unwrap();
    let whole = fs::read(&first).unwrap();
    let names = || {
        let entries = fs::read_dir(first.parent().unwrap()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect::<std::collections::BTreeSet<String>>()
    };
    // An earlier version may have left a JSON file without a file of samples.
    fs::write(first.with_file_name("test-2.json"), "older").unwrap();
    let third = save(&result, folder.path()).unwrap();
    assert_eq!(third, first.with_file_name("test-3.json"));
    let expected = ["test-2.json", "test-3.csv.gz", "test-3.json", "test.csv.gz", "test.json"];
    assert_eq!(names(), expected.map(str::to_owned).into());
    assert_eq!(fs::read(&first).unwrap(), whole);
    // If a result cannot be saved, its samples are removed, and the error names the file.
    let study = "x".repeat(300);
    let error = save(&StudyResult { study, ..result }, folder.path()).unwrap_err();
    assert!(error.to_string().contains("xxx.csv.gz: "), "{error}");
    assert_eq!(names().len(), 5);
}

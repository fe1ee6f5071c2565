//! Names, results of this version that later ones must still read, and those kept in the repository.

use super::{lines::by_arms, results::without_samples, *};
use crate::{
    arms::CATALOGUE,
    study::{result::StudyResult, sum},
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

/// `THALWEG_BLESS=1` judges them again, after a study's claims changed on purpose.
#[test]
fn every_verdict_that_is_kept_follows_from_the_samples_beside_it() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies");
    let studies = Loaded::folder(&folder, &CATALOGUE).unwrap();
    let studies: Vec<Loaded> = studies.into_iter().map(Result::unwrap).collect();
    let all = saved(&folder.join("results"));
    assert!(all.len() >= 10, "{} results", all.len());
    for kept in all {
        let found = load(&kept.path).unwrap();
        let study = &studies.iter().find(|loaded| loaded.study.id == kept.study).unwrap().study;
        let mut again = found.clone();
        sum::judge(study, &mut again);
        if std::env::var_os("THALWEG_BLESS").is_some() {
            let samples = kept.path.with_extension("csv.gz").file_name().unwrap().to_owned();
            let bare = without_samples(&again, samples.into_string().unwrap());
            fs::write(&kept.path, by_arms(&bare).unwrap()).unwrap();
            continue;
        }
        let name = kept.path.display();
        let hint = "THALWEG_BLESS=1 judges it again";
        assert_eq!(verdicts(&again), verdicts(&found), "{name}: {hint}");
        let (now, then) = (figures(&again), figures(&found));
        let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-9 * a.abs().max(b.abs());
        assert!(now.len() == then.len() && now.iter().zip(&then).all(near), "{name}: {hint}");
    }
}

fn verdicts(result: &StudyResult) -> Vec<(&str, ClaimVerdict)> {
    result.claims.iter().map(|claim| (claim.id.as_str(), claim.verdict)).collect()
}

/// Everything that was worked out from samples. Another processor's logarithm may end otherwise.
fn figures(result: &StudyResult) -> Vec<f64> {
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
    assert!(error.contains("line 2 is no sample of this result"), "{error}");
    refused(None);
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
    // A version before this one may have left it alone there.
    fs::write(first.with_file_name("test-2.json"), "older").unwrap();
    let third = save(&result, folder.path()).unwrap();
    assert_eq!(third, first.with_file_name("test-3.json"));
    let expected = ["test-2.json", "test-3.csv.gz", "test-3.json", "test.csv.gz", "test.json"];
    assert_eq!(names(), expected.map(str::to_owned).into());
    assert_eq!(fs::read(&first).unwrap(), whole);
    // What cannot be saved leaves no samples alone, and is named.
    let study = "x".repeat(300);
    let error = save(&StudyResult { study, ..result }, folder.path()).unwrap_err();
    assert!(error.to_string().contains("xxx.csv.gz: "), "{error}");
    assert_eq!(names().len(), 5);
}

//! Tests of finding and reading results, and of the errors for files that are not results.

use std::{fs, path::PathBuf};
use thalweg_lab::{
    report::{ReportError, articles, counts, html, read, read_all},
    study::store::ResultError,
};

use super::{
    fixture::{self, Extent},
    markup,
};

fn saved() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/studies/results")
}

#[test]
fn saved_results_are_read_with_their_study_and_make_a_page() {
    let found = read_all(&[saved()]).expect("the saved results");
    assert!(found.passed_over.is_empty(), "{:?}", found.passed_over);
    assert_eq!(found.inputs.len(), 1);
    assert_eq!(found.inputs[0].study.as_ref().expect("its study").source.tables.len(), 1);
    markup::examine(&html(&found.inputs).expect("a page"));
}

/// With `THALWEG_BLESS=1`, this test writes the file again. Use it after a deliberate change of the generator or the
/// format.
#[test]
fn the_saved_result_is_what_the_generator_makes() {
    let path = saved().join("machine/2026-11-22/900.json");
    let made = fixture::json(Extent { sessions: 3, rounds: 5, seed: 7 });
    let text = serde_json::to_string(&made).expect("JSON") + "\n";
    if std::env::var_os("THALWEG_BLESS").is_some() {
        fs::create_dir_all(path.parent().expect("a folder")).expect("the folder");
        fs::write(&path, &text).expect("the saved result");
    }
    assert!(
        fs::read_to_string(&path).expect("the saved result") == text,
        "THALWEG_BLESS=1 writes it anew"
    );
}

#[test]
fn a_result_survives_its_json() {
    let result = fixture::result(Extent { sessions: 2, rounds: 2, seed: 5 });
    let text = serde_json::to_string(&result).expect("JSON");
    let again: thalweg_lab::study::result::StudyResult =
        serde_json::from_str(&text).expect("a result");
    assert_eq!(serde_json::to_string(&again).expect("JSON"), text);
}

#[test]
fn what_is_no_result_is_refused_by_name_and_reason() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let refused = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("a file");
        let error = read(&path).expect_err(name);
        let words = error.to_string();
        assert!(words.contains(name), "{words}");
        (error, words)
    };
    let newer = fixture::json(Extent { sessions: 1, rounds: 1, seed: 1 }).to_string();
    let newer = newer.replacen("\"schema\":1", "\"schema\":9", 1);
    let (error, words) = refused("newer.json", &newer);
    assert!(
        matches!(error, ReportError::Result(ResultError::Newer { schema: 9, .. }))
            && words.contains("newer one"),
        "{words}"
    );
    for (name, text, reason) in [
        ("text.json", "hello", "not a result of `thalweg study`"),
        ("other.json", "{\"a\": 1}", "no \"study\""),
        ("list.json", "[]", "not a result of `thalweg study`"),
        ("half.json", "{\"study\": \"002\", \"schema\": 1, \"title\": \"x\"}", "missing field"),
        ("words.json", "{\"study\": \"002\", \"schema\": \"one\"}", "not a version"),
        ("deep.json", &format!("{{\"study\":{}", "[".repeat(100_000)), "recursion"),
    ] {
        let (error, words) = refused(name, text);
        assert!(
            matches!(error, ReportError::Result(ResultError::NoResult { .. }))
                && words.contains(reason),
            "{words}"
        );
    }
    let gone = read(&folder.path().join("gone.json")).expect_err("no file");
    assert!(
        matches!(gone, ReportError::Result(ResultError::Unreadable { .. }))
            && gone.to_string().contains("gone.json")
    );
    let nothing = read_all(&[folder.path().to_owned()]).expect_err("a folder without results");
    assert!(nothing.to_string().contains("no results"), "{nothing}");
}

#[test]
fn one_bad_file_in_a_folder_does_not_hide_the_others() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let result = fixture::json(Extent { sessions: 1, rounds: 2, seed: 1 }).to_string();
    fs::write(folder.path().join("good.json"), result).expect("a result");
    fs::write(folder.path().join("bad.json"), "{").expect("a file");
    let found = read_all(&[folder.path().to_owned()]).expect("one result");
    assert_eq!((found.inputs.len(), found.passed_over.len()), (1, 1));
    assert!(found.passed_over[0].contains("bad.json"));
}

#[test]
fn a_pipe_that_looks_like_a_result_is_not_waited_for() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let mode = rustix::fs::Mode::from(0o600);
    let pipe = folder.path().join("endless.json");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).expect("a pipe");
    let nothing = read_all(&[folder.path().to_owned()]).expect_err("no result");
    assert!(nothing.to_string().contains("no results"), "{nothing}");
}

/// If studies or the results in the repository changed, run `thalweg report --articles -o docs/benchmarks/articles.md
/// studies/results`.
#[test]
fn the_articles_page_and_the_table_of_counts_match_the_kept_results() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let found = read_all(&[root.join("studies/results")]).expect("kept results");
    let page = fs::read_to_string(root.join("docs/benchmarks/articles.md")).expect("the page");
    let made = articles(&found.inputs);
    let line = page.lines().zip(made.lines()).find(|(kept, now)| kept != now);
    assert!(page == made, "docs/benchmarks/articles.md is not what it is made of: {line:?}");
    let readme = fs::read_to_string(root.join("studies/results/README.md")).expect("its README");
    let counts = counts(&found.inputs);
    assert!(readme.contains(&counts), "studies/results/README.md lacks these lines:\n{counts}");
    for study in ["000", "001", "002", "003", "004"] {
        assert!(page.contains(&format!("## {study}: ")), "{study}");
    }
}

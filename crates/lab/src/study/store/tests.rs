//! Names, and results of this version that later ones must still read.

use super::*;

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
    let all = Loaded::folder(folder.path(), &crate::arms::CATALOGUE).unwrap();
    assert_eq!(all.len(), 1);
    let error = all[0].as_ref().unwrap_err().to_string();
    assert!(error.contains("1.toml") && error.contains("line 1"), "{error}");
    assert!(Loaded::folder(&folder.path().join("none"), &crate::arms::CATALOGUE).is_err());
}

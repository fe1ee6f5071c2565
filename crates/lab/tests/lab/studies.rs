//! Checks every study file of the repository: it parses, names only existing things, and the works
//! and probes accept its parameters. `thalweg study` runs them.

use std::{
    fs,
    path::{Path, PathBuf},
};
use thalweg_core::quantity::parse_some_bytes;
use thalweg_lab::{
    arms::{ArmJob, CATALOGUE},
    study::file::{Article, Claim, ClaimCheck, KINDS, SourceItem, StudyArm, StudyCell, StudyFile},
};
use thalweg_measure::load::BackgroundLoad;
use thalweg_testing::Sample;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies")
}

fn studies() -> Vec<StudyFile> {
    let files = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|ext| ext == "toml")).collect();
    files.sort();
    assert!(!files.is_empty());
    let read = |path: PathBuf| {
        let study = StudyFile::parse(&fs::read_to_string(&path).unwrap(), &CATALOGUE);
        let study = study.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with(&format!("{}-", study.id)), "{name} has the id {}", study.id);
        study
    };
    files.into_iter().map(read).collect()
}

#[test]
fn every_study_parses_and_numbers_its_claims_without_a_gap() {
    for study in studies() {
        for (number, claim) in study.claims.iter().enumerate() {
            assert_eq!(claim.id, format!("{}.{}", study.id, number + 1));
            assert!(claim.predicate.is_some() || claim.not_runnable.is_some(), "{}", claim.id);
        }
        assert!(!study.source.parameters.is_empty(), "{}", study.id);
    }
}

/// Parts of error messages that only a mistake in a study file can cause.
const MISTAKES: &[&str] = &[
    "parameters of",
    "unknown parameter",
    "unknown mechanism",
    "no knob",
    "unknown arm",
    "does not support the pair",
    "100MB/s",
    "no such parameter",
    "not known here",
    "not a number",
    "key=value",
    "unknown kernel",
    "unknown distribution",
    "allowed only",
    "a kernel is required",
    "cannot build",
    "cannot be started",
    "one process",
    "compiled for",
    "no file to",
    "for a C source",
    "for a Java source",
    "needs jdk",
    "power of two",
];

fn is_no_mistake(what: &str, reason: &str) {
    assert!(!MISTAKES.iter().any(|mistake| reason.contains(mistake)), "{what}: {reason}");
}

#[test]
fn the_parameters_of_every_arm_and_probe_are_taken() {
    let scratch = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_thalweg-lab-helper"));
    let scratch = scratch.path();
    let none = toml::Table::new();
    let studies = folder();
    let job = ArmJob { arm: "arm", with: &none, bytes: 4096, scratch, studies: &studies, program };
    let mut sample = Sample::new("the_parameters_of_every_arm_and_probe_are_taken", 8);
    for study in &self::studies() {
        let places =
            study.cells.iter().flat_map(|cell| cell.arms.iter().map(move |arm| (cell, arm)));
        // The sample contains at least one arm and one probe of each study.
        for (cell, name) in sample.of(places) {
            let arm = study.arms.iter().find(|arm| arm.name == *name).unwrap();
            let work = CATALOGUE.arm_kind(&arm.work).unwrap();
            // Opening an arm allocates no buffers. A program may be built for certain sizes only,
            // so its own size is used.
            let bytes = match arm.work.as_str() {
                "worker" | "memory" => parse_some_bytes(&cell.sizes[0]).unwrap(),
                _ => job.bytes,
            };
            let job = ArmJob { bytes, ..job };
            // If this machine lacks a file system or a congestion control, the study file is not at
            // fault.
            if let Err(unfit) = work.open(&ArmJob { with: &cell.parameters(arm), ..job }) {
                is_no_mistake(&format!("{} {} {name}", study.id, cell.name), &unfit.reason);
            }
        }
        let checks = study.claims.iter().flat_map(|claim| {
            claim.checks.iter().chain(&claim.flips).map(|check| (&claim.id, check))
        });
        let probes = checks.filter_map(|(claim, check)| match check {
            ClaimCheck::Probe { probe, with, .. } => Some((claim, probe, with)),
            _ => None,
        });
        for (claim, probe, with) in sample.of(probes) {
            if let Err(unfit) = CATALOGUE.probe(probe).unwrap().run(&ArmJob { with, ..job }) {
                is_no_mistake(&format!("{claim} {probe}"), &unfit.reason);
            }
        }
    }
}

/// Returns the names that serde lists as valid in its error message.
fn expected(error: &str) -> Vec<String> {
    let names = error.split_once("expected").unwrap_or_else(|| panic!("{error}")).1;
    names.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn keys_of<T: serde::de::DeserializeOwned>(before: &str) -> Vec<String> {
    let text = format!("{before}\nno-such-key = 1\n");
    expected(&toml::from_str::<T>(&text).err().unwrap().to_string())
}

#[test]
fn the_page_about_studies_names_all_that_a_study_may_say() {
    let page = fs::read_to_string(folder().join("../docs/reference/studies.md")).unwrap();
    let mut names = keys_of::<StudyFile>("");
    names.extend(keys_of::<Article>(""));
    names.extend(keys_of::<SourceItem>(""));
    names.extend(keys_of::<StudyCell>(""));
    names.extend(keys_of::<StudyArm>(""));
    names.extend(keys_of::<Claim>(""));
    let tests = toml::from_str::<ClaimCheck>("test = \"no-such-test\"").unwrap_err().to_string();
    let tests = expected(&tests);
    assert!(tests.len() >= 10, "{tests:?}");
    for test in &tests {
        names.extend(keys_of::<ClaimCheck>(&format!("test = {test:?}")));
    }
    names.extend(tests);
    names.extend(
        [
            BackgroundLoad::Idle,
            BackgroundLoad::Busy,
            BackgroundLoad::Quarter,
            BackgroundLoad::Writeback,
        ]
        .map(|l| l.name().to_owned()),
    );
    names.extend(KINDS.iter().map(|&kind| kind.to_owned()));
    let with = toml::Table::from_iter([("no-such-key".to_owned(), toml::Value::Integer(1))]);
    let refusals = CATALOGUE.arm_kinds.iter().map(|kind| (kind.name, (kind.parse)(&with).err()));
    let refusals = refusals
        .chain(CATALOGUE.probes.iter().map(|probe| (probe.name, (probe.parse)(&with).err())));
    for (name, refused) in refusals {
        names.push(name.to_owned());
        let reason = refused.unwrap().reason;
        if !reason.contains("known: none") {
            names.extend(expected(&reason));
        }
    }
    for name in names {
        // `table` is written as in the file: `[[source.table]]`.
        let shown = [format!("`{name}"), format!("[{name}"), format!(".{name}]")];
        assert!(
            shown.iter().any(|shown| page.contains(shown)),
            "docs/reference/studies.md does not name {name}"
        );
    }
}

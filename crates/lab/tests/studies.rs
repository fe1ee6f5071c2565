//! Every study file of the repository: it parses, names only what exists, and its parameters are
//! ones that the works and probes take. Running them is for `thalweg study`.
#![allow(clippy::unwrap_used)]

use std::{
    fs,
    path::{Path, PathBuf},
};
use thalweg_core::quantity::parse_some_bytes;
use thalweg_lab::{
    arms::{CATALOGUE, Job},
    study::file::{Check, Study},
};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies")
}

fn studies() -> Vec<Study> {
    let files = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|ext| ext == "toml")).collect();
    files.sort();
    assert!(!files.is_empty());
    let read = |path: PathBuf| {
        let study = Study::parse(&fs::read_to_string(&path).unwrap(), &CATALOGUE);
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

/// What only a mistake in the file can be the reason of.
const MISTAKES: &[&str] = &[
    "parameters of",
    "unknown parameter",
    "no mechanism",
    "no knob",
    "there is no arm",
    "serves no",
    "100MB/s",
    "no such parameter",
    "not known here",
    "not a number",
    "key=value",
    "no kernel",
    "no distribution",
    "goes with",
    "it needs a kernel",
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
    let job = Job { arm: "arm", with: &none, bytes: 4096, scratch, studies: &studies, program };
    for study in &self::studies() {
        let places =
            study.cells.iter().flat_map(|cell| cell.arms.iter().map(move |arm| (cell, arm)));
        for (cell, name) in places {
            let arm = study.arms.iter().find(|arm| arm.name == *name).unwrap();
            let work = CATALOGUE.arm_kind(&arm.work).unwrap();
            // Nothing is allocated yet; a program may have been built for some sizes alone.
            let bytes = match arm.work.as_str() {
                "worker" | "memory" => parse_some_bytes(&cell.sizes[0]).unwrap(),
                _ => job.bytes,
            };
            let job = Job { bytes, ..job };
            // A file system or a congestion control that is not here is none of the file's faults.
            if let Err(unfit) = work.open(&Job { with: &cell.parameters(arm), ..job }) {
                is_no_mistake(&format!("{} {} {name}", study.id, cell.name), &unfit.reason);
            }
        }
        for claim in &study.claims {
            for check in claim.checks.iter().chain(&claim.flips) {
                let Check::Probe { probe, with, .. } = check else { continue };
                if let Err(unfit) = CATALOGUE.probe(probe).unwrap().run(&Job { with, ..job }) {
                    is_no_mistake(&format!("{} {probe}", claim.id), &unfit.reason);
                }
            }
        }
    }
}

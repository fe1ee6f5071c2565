//! Study 103 without its peers, as in a fresh clone: the reason for each missing peer names it and
//! says what to do.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};
use thalweg_lab::{
    arms::{ArmJob, CATALOGUE},
    study::file::StudyFile,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn a_peer_that_is_not_built_is_left_out_by_its_name() {
    let text = fs::read_to_string(root().join("studies/103-channel-peers.toml")).unwrap();
    let study = StudyFile::parse(&text, &CATALOGUE).unwrap();
    assert!(study.only_by_name, "it needs programs that are not built with thalweg");
    // A directory tree that contains the starter script, but no program that it could start.
    let tree = tempfile::tempdir().unwrap();
    let (studies, scratch) = (tree.path().join("studies"), tree.path().join("scratch"));
    let peers = tree.path().join("peers/channel");
    for folder in [&studies, &scratch, &peers] {
        fs::create_dir_all(folder).unwrap();
    }
    // The script looks for programs relative to the path by which it was called.
    let start = root().canonicalize().unwrap().join("peers/channel/start");
    symlink(start, peers.join("start")).unwrap();
    let mut seen = BTreeSet::new();
    for arm in &study.arms {
        let peer = arm.with["args"][0].as_str().unwrap();
        if !seen.insert(peer) {
            continue;
        }
        let (program, scratch) = (Path::new("/nowhere"), scratch.as_path());
        let job = ArmJob {
            arm: &arm.name,
            with: &arm.with,
            bytes: 64,
            scratch,
            studies: &studies,
            program,
        };
        let reason = match CATALOGUE.arm_kind(&arm.work).unwrap().open(&job) {
            Ok(_) => panic!("{}: nothing was built", arm.name),
            Err(unfit) => unfit.reason,
        };
        assert!(reason.contains(&format!("{peer} is not here")), "{reason}");
        assert!(reason.contains("peers/install"), "{reason}");
    }
    assert!(seen.len() >= 6, "{seen:?}");
}

/// The study compares what `thalweg send` chooses on this machine with the profile and without it.
#[test]
fn every_arm_that_chooses_stands_beside_one_without_a_profile() {
    let text = fs::read_to_string(root().join("studies/103-channel-peers.toml")).unwrap();
    let study = StudyFile::parse(&text, &CATALOGUE).unwrap();
    let words = |name: &str| -> Vec<String> {
        let arm = study.arms.iter().find(|arm| arm.name == name).unwrap();
        let args = arm.with["args"].as_array().unwrap();
        args.iter().map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    let mut pairs = 0;
    for arm in &study.arms {
        let tuned = words(&arm.name);
        if !tuned.contains(&"arm=auto".to_owned()) || tuned.contains(&"profile=0".to_owned()) {
            continue;
        }
        let other = arm.name.replace("thalweg auto", "thalweg auto-untuned");
        let without: Vec<String> =
            words(&other).into_iter().filter(|word| word != "profile=0").collect();
        assert_ne!(words(&other), without, "{other} uses the profile");
        assert_eq!(without, tuned, "{other}");
        let has = |cell: &thalweg_lab::study::file::StudyCell, name: &str| {
            cell.arms.iter().any(|arm| arm == name)
        };
        let together = |cell| has(cell, &arm.name) && has(cell, &other);
        assert!(study.cells.iter().any(together), "{other} is in no cell of {}", arm.name);
        pairs += 1;
    }
    assert!(pairs >= 3, "{pairs}");
}

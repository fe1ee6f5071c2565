//! Study 103 without its peers, as in a fresh clone: each is left out by its name, with what to do.
#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};
use thalweg_lab::{
    study::file::Study,
    works::{CATALOGUE, Job},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn a_peer_that_is_not_built_is_left_out_by_its_name() {
    let text = fs::read_to_string(root().join("studies/103-channel-peers.toml")).unwrap();
    let study = Study::parse(&text, &CATALOGUE).unwrap();
    assert!(study.only_by_name, "it needs programs that are not built with thalweg");
    // A tree with the starter in it, and nothing that it could start.
    let tree = tempfile::tempdir().unwrap();
    let (studies, scratch) = (tree.path().join("studies"), tree.path().join("scratch"));
    let peers = tree.path().join("peers/channel");
    for folder in [&studies, &scratch, &peers] {
        fs::create_dir_all(folder).unwrap();
    }
    // It looks beside the name that it was called by.
    let start = root().canonicalize().unwrap().join("peers/channel/start");
    symlink(start, peers.join("start")).unwrap();
    let mut seen = BTreeSet::new();
    for arm in &study.arms {
        let peer = arm.with["args"][0].as_str().unwrap();
        if !seen.insert(peer) {
            continue;
        }
        let (program, scratch) = (Path::new("/nowhere"), scratch.as_path());
        let job =
            Job { arm: &arm.name, with: &arm.with, bytes: 64, scratch, studies: &studies, program };
        let reason = match CATALOGUE.work(&arm.work).unwrap().open(&job) {
            Ok(_) => panic!("{}: nothing was built", arm.name),
            Err(unfit) => unfit.reason,
        };
        assert!(reason.contains(&format!("{peer} is not here")), "{reason}");
        assert!(reason.contains("peers/install"), "{reason}");
    }
    assert!(seen.len() >= 6, "{seen:?}");
}

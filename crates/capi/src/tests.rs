//! Compares the layout of the header's structs, as the C compiler sees it, with this crate's structs.

use crate::{bulk, channel, error, link, moving};
use std::{path::Path, process::Command};

#[test]
fn c_and_rust_agree_about_every_field() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("layout");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let compiled = Command::new("cc")
        .arg("-I")
        .arg(root.join("include"))
        .arg(root.join("tests/c/layout.c"))
        .arg("-o")
        .arg(&program)
        .status();
    assert!(compiled.unwrap().success());
    let printed = String::from_utf8(Command::new(program).output().unwrap().stdout).unwrap();
    let ours =
        [error::layout(), moving::layout(), link::layout(), channel::layout(), bulk::layout()];
    let ours: Vec<String> =
        ours.concat().iter().map(|(name, number)| format!("{name} {number}")).collect();
    assert_eq!(printed.lines().collect::<Vec<_>>(), ours);
}

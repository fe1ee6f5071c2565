//! Tests that a C program reads the golden vectors.

use crate::support::{compile, root, run};
use serde_json::Value;
use std::fs;
use std::process::Command;

#[test]
fn c_reads_the_golden_vectors() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("vectors");
    compile(&root().join("tests/c/vectors.c"), &program);
    let vectors = root().join("../../tests/vectors");
    let read =
        |command: &mut Command| -> Value { serde_json::from_slice(&run(command).stdout).unwrap() };
    let text = fs::read(vectors.join("expected.json")).unwrap();
    let expected: Value = serde_json::from_slice(&text).unwrap();
    for (name, ring) in expected["rings"].as_object().unwrap() {
        let files = ["producer", "consumer"].map(|side| vectors.join(format!("{name}.{side}.hex")));
        assert_eq!(&read(Command::new(&program).arg("ring").args(&files)), ring, "{name}");
        // Swapped files violate the format, and the program must detect this.
        let swapped = Command::new(&program)
            .args(["ring".as_ref(), files[1].as_os_str(), files[0].as_os_str()])
            .output();
        assert_eq!(swapped.unwrap().status.code(), Some(1));
    }
    let handshake =
        read(Command::new(&program).arg("handshake").arg(vectors.join("handshake.hex")));
    assert_eq!(handshake, expected["handshake"]);
}

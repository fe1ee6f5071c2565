//! Helpers: the object as a file, C programs, and counted skips.
#![allow(dead_code)]

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};
use tempfile::TempDir;
use thalweg_kernels::{FILLS, KERNELS};
use thalweg_preload::{
    choice::LIBC,
    counts::{Counts, blank},
    layout,
};

pub use thalweg_testing::skip;

/// A temporary directory that contains the object.
pub struct Place {
    folder: TempDir,
    /// Path of the object.
    pub object: PathBuf,
}

impl Place {
    /// Creates the directory. If this build has no object, counts a skip and returns `None`.
    pub fn new(test: &str) -> Option<Self> {
        let bytes = match thalweg_preload::object() {
            Ok(bytes) => bytes,
            Err(reason) => {
                skip(test, &format!("this build has no object: {reason}"));
                return None;
            }
        };
        let folder = tempfile::tempdir().expect("a scratch folder");
        let object = folder.path().join("thalweg-preload.so");
        std::fs::write(&object, bytes).expect("the object");
        Some(Self { folder, object })
    }

    /// Returns a path in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Compiles a C program of `tests/c` so that no call is inlined. Without `cc`, counts a skip and
    /// returns `None`.
    pub fn compiled(&self, test: &str, name: &str, more: &[&str]) -> Option<PathBuf> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name);
        let program =
            self.path(&name.replace(".c", if more.contains(&"-shared") { ".so" } else { "" }));
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-fno-builtin", "-fno-tree-loop-distribute-patterns", "-pthread", "-o"]);
        cc.arg(&program).arg(source).args(more);
        match cc.output() {
            Ok(done) if done.status.success() => Some(program),
            Ok(done) => panic!("{name}: {}", String::from_utf8_lossy(&done.stderr)),
            Err(error) => {
                skip(test, &format!("cc does not start: {error}"));
                None
            }
        }
    }

    /// Runs a program with a choice of kernels. Returns its output and the counts.
    pub fn run(&self, choice: &Choice, command: &mut Command) -> (Output, Counts) {
        let file = self.path("counts");
        std::fs::write(&file, blank()).expect("the counts");
        command.env(layout::COUNTS, &file);
        let output = self.run_uncounted(choice, command);
        (output, Counts::read(&std::fs::read(&file).expect("the counts")).expect("counts"))
    }

    /// Runs a program with a choice of kernels, without counting.
    pub fn run_uncounted(&self, choice: &Choice, command: &mut Command) -> Output {
        command.env("LD_PRELOAD", &self.object);
        command.env(layout::KERNEL, &choice.copies).env(layout::FILL, &choice.fills);
        command.output().unwrap_or_else(|e| panic!("{}: {e}", command.get_program().display()))
    }
}

/// The choice in the environment of the program.
#[derive(Debug)]
pub struct Choice {
    pub copies: String,
    pub fills: String,
}

/// Returns a choice for each kernel of this machine, with the fill of the same name or libc's fill. Adds a choice for each other
/// fill, and one choice by size.
pub fn choices() -> Vec<Choice> {
    let is_whole = |name: &str| name != thalweg_kernels::tuned::NAME;
    let copies = KERNELS.iter().filter(|row| is_whole(row.name) && (row.is_available)());
    let copies: Vec<&str> = copies.map(|row| row.name).collect();
    let fills = FILLS.iter().filter(|row| is_whole(row.name) && (row.is_available)());
    let fills: Vec<&str> = fills.map(|row| row.name).collect();
    let mut choices: Vec<Choice> = Vec::new();
    for name in &copies {
        let fill = if fills.contains(name) { name } else { LIBC };
        choices.push(Choice { copies: (*name).to_owned(), fills: fill.to_owned() });
    }
    for name in fills.iter().filter(|name| !copies.contains(name)) {
        choices.push(Choice { copies: LIBC.to_owned(), fills: (*name).to_owned() });
    }
    let first = copies[0];
    choices.push(Choice {
        copies: format!("100={first},3000=libc,5000={first}"),
        fills: format!("7=libc,{first}"),
    });
    choices
}

//! The object as a file, C programs, and the list of what could not be tested here.
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

/// A folder with the object in it.
pub struct Place {
    folder: TempDir,
    /// The object.
    pub object: PathBuf,
}

impl Place {
    /// A new one; `None`, counted, where this build has no object.
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

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A C program of `tests/c`, compiled so that no call is inlined; `None`, counted, without `cc`.
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

    /// Runs a program under a choice of kernels and says what was counted.
    pub fn run(&self, choice: &Choice, command: &mut Command) -> (Output, Counts) {
        let file = self.path("counts");
        std::fs::write(&file, blank()).expect("the counts");
        command.env(layout::COUNTS, &file);
        let output = self.run_uncounted(choice, command);
        (output, Counts::read(&std::fs::read(&file).expect("the counts")).expect("counts"))
    }

    /// The same without counting.
    pub fn run_uncounted(&self, choice: &Choice, command: &mut Command) -> Output {
        command.env("LD_PRELOAD", &self.object);
        command.env(layout::KERNEL, &choice.copies).env(layout::FILL, &choice.fills);
        command.output().unwrap_or_else(|e| panic!("{}: {e}", command.get_program().display()))
    }
}

/// What the object is told.
#[derive(Debug)]
pub struct Choice {
    pub copies: String,
    pub fills: String,
}

/// Every kernel of this machine with a fill of its name or libc's, every other fill, and one choice by
/// size.
pub fn choices() -> Vec<Choice> {
    let is_whole = |name: &str| name != thalweg_kernels::tuned::COPY.name;
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

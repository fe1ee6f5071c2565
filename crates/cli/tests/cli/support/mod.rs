//! A scratch directory, the command in it, and the record of skipped tests.
#![allow(dead_code)]

use std::{
    io::Write,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};
use tempfile::TempDir;

pub mod trial;
pub use thalweg_testing::{executable, skip};

/// A directory of one test, removed at the end of the test.
pub struct Scratch(TempDir);

impl Scratch {
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a scratch folder"))
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file with these bytes.
    pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("its folder");
        std::fs::write(&path, bytes).expect("a scratch file");
        path
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// Returns the names in this directory, sorted.
    pub fn names(&self) -> Vec<String> {
        thalweg_testing::names(self.0.path())
    }

    /// Returns the command, which will run in this directory without a profile. It inherits THALWEG_CPU, but no other
    /// variable of thalweg.
    pub fn thalweg<S: AsRef<std::ffi::OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("THALWEG_") && name != "THALWEG_CPU" {
                command.env_remove(name);
            }
        }
        command.args(args).current_dir(self.0.path()).env("COLUMNS", "120");
        command.env("THALWEG_PROFILE", self.path("no/profile.json")).stdin(Stdio::null());
        command
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        Ran::of(self.thalweg(args).output().expect("the command starts"))
    }

    /// Runs the command with these bytes on its standard input, through a pipe.
    pub fn feed(&self, args: &[&str], bytes: &[u8]) -> Ran {
        let mut command = self.thalweg(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the command starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        std::thread::scope(|scope| {
            scope.spawn(move || drop(stdin.write_all(bytes)));
            Ran::of(child.wait_with_output().expect("its output"))
        })
    }

    /// Runs a line of shell in which `$T` is the command.
    pub fn shell(&self, line: &str) -> Ran {
        let mut command = Command::new("bash");
        command.arg("-c").arg(line).current_dir(self.0.path()).stdin(Stdio::null());
        command.env("T", env!("CARGO_BIN_EXE_thalweg"));
        command.env("THALWEG_PROFILE", self.path("no/profile.json"));
        Ran::of(command.output().expect("bash starts"))
    }
}

/// The result of a run.
pub struct Ran {
    /// The exit code; 128 plus the number of the signal after a death by signal, as in a shell.
    pub code: i32,
    pub out: Vec<u8>,
    pub err: String,
}

impl Ran {
    fn of(output: Output) -> Self {
        let signal = || 128 + output.status.signal().unwrap_or(0);
        let code = output.status.code().unwrap_or_else(signal);
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!err.contains("panicked"), "{err}");
        Self { code, out: output.stdout, err }
    }

    /// Waits for a child that will end, and returns its result.
    pub fn of_child(child: Child) -> Self {
        Self::of(child.wait_with_output().expect("its output"))
    }

    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    /// Panics unless the run ended with this code.
    #[track_caller]
    pub fn ended(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.text(), self.err);
        self
    }

    /// Standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.out).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    /// The last line of standard error that is JSON.
    #[track_caller]
    pub fn err_json(&self) -> serde_json::Value {
        let json = |line: &str| serde_json::from_str(line).ok();
        self.err.lines().rev().find_map(json).unwrap_or_else(|| panic!("no JSON: {}", self.err))
    }
}

/// Returns pseudorandom bytes, so that a wrong offset cannot give equal bytes.
pub fn bytes(count: usize) -> Vec<u8> {
    thalweg_testing::noise(count, 1)
}

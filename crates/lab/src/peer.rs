//! The system's own `cp`, as an arm to compare with: a fresh process each time.

use serde::Serialize;
use std::{
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use crate::measure::{
    sample::{Meter, Sample},
    schedule::{Arm, Failure},
};
use std::cell::RefCell;
use thalweg_core::Unfit;

/// A `cp` that works here.
#[derive(Clone, Debug, Serialize)]
pub struct Cp {
    /// The command without its operands: `cp --reflink=never`.
    pub command: String,
    /// What it says of itself; empty if nothing.
    pub version: String,
    /// Seconds it takes to copy an empty file. They are part of each of its samples.
    pub startup: f64,
}

impl Cp {
    /// The `cp` of the system, with the first of these sets of options that it takes. It is tried
    /// on two names, an empty file and one that does not exist, and leaves nothing at the second.
    pub fn find(options: &[&str], empty: &Path, copy: &Path) -> Result<Self, String> {
        std::fs::write(empty, "").map_err(|e| format!("{}: {e}", empty.display()))?;
        let mut refusal = String::new();
        for options in options {
            let command = format!("cp {options}").trim_end().to_owned();
            let cp = Self { command, version: String::new(), startup: 0.0 };
            match cp.start(empty, copy) {
                Ok(startup) => return Ok(Self { version: version(), startup, ..cp }),
                Err(reason) => refusal = reason,
            }
        }
        Err(refusal)
    }

    /// Seconds to copy an empty file; the copy is removed.
    fn start(&self, empty: &Path, copy: &Path) -> Result<f64, String> {
        let began = Instant::now();
        let done = self.run(empty, copy);
        let took = began.elapsed().as_secs_f64();
        remove(copy);
        done.map(|()| took)
    }

    pub fn run(&self, source: &Path, copy: &Path) -> Result<(), String> {
        let status = self.process(source, copy).stderr(Stdio::null()).status();
        match status {
            Ok(status) if status.success() => Ok(()),
            // Once more for its words: nobody reads them while it is timed.
            Ok(status) => {
                remove(copy);
                let output = self.process(source, copy).stderr(Stdio::piped()).output();
                let words = output.map(|o| String::from_utf8_lossy(&o.stderr).trim().to_owned());
                Err(format!("{}: {status}: {}", self.command, words.unwrap_or_default()))
            }
            Err(error) => Err(format!("{}: {error}", self.command)),
        }
    }

    fn process(&self, source: &Path, copy: &Path) -> Command {
        let mut words = self.command.split(' ');
        let mut command = Command::new(words.next().unwrap_or("cp"));
        command.args(words).arg("--").args([source, copy]);
        command.env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::null());
        command
    }
}

/// `cp` as an arm. Its start is part of each sample, and measured beside each of them by copying an
/// empty file, so that it is known how large a part.
pub(crate) struct CpArm<'p> {
    pub cp: &'p Cp,
    pub source: &'p Path,
    pub copy: &'p Path,
    pub empty: &'p Path,
    pub bytes: u64,
    /// Looks at what was copied.
    pub checked: &'p dyn Fn() -> Result<(), Unfit>,
    /// Seconds of all starts so far.
    pub starts: &'p RefCell<Vec<f64>>,
}

impl Arm for CpArm<'_> {
    fn sample(&mut self, _repeats: u32) -> Result<Sample, Failure> {
        let unfit = |reason: String| Failure::Unfit(Unfit::because(reason));
        remove(self.copy);
        let started = self.cp.start(self.empty, self.copy).map_err(unfit)?;
        self.starts.borrow_mut().push(started);
        let meter = Meter::start();
        let done = self.cp.run(self.source, self.copy);
        let sample = meter.stop(self.bytes);
        done.map(|()| sample).map_err(unfit)
    }

    fn check(&mut self) -> Result<(), Unfit> {
        (self.checked)()
    }
}

/// Removes a file or a tree, if there is one.
pub(crate) fn remove(path: &Path) {
    if path.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
        let _ = std::fs::remove_dir_all(path);
    } else {
        let _ = std::fs::remove_file(path);
    }
}

fn version() -> String {
    let output = Command::new("cp").arg("--version").stdin(Stdio::null()).output();
    let words = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
    words.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_options_are_passed_over_and_a_failure_has_its_words() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        std::fs::write(&from, "bytes").unwrap();
        let empty = folder.path().join("empty");
        let cp = Cp::find(&["--no-such-option", ""], &empty, &to).unwrap();
        assert_eq!(cp.command, "cp");
        assert!(cp.startup > 0.0 && !to.exists());
        cp.run(&from, &to).unwrap();
        assert_eq!(std::fs::read(&to).unwrap(), b"bytes");
        let words = cp.run(&folder.path().join("none"), &to).unwrap_err();
        assert!(words.contains("No such file"), "{words}");
    }
}

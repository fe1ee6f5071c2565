//! The system's `cp` as an arm (a compared variant) for comparison: a new process for each sample, like every command.

use serde::Serialize;
use std::{cell::RefCell, path::Path, process::Command, process::Stdio};
use thalweg_core::Unfit;

use super::command::CommandRunner;
use crate::{
    sample::Sample,
    schedule::{Arm, SampleFailure},
    scratch::remove,
};

/// A `cp` that works on this machine.
#[derive(Clone, Debug, Serialize)]
pub struct Cp {
    /// The command without its operands, like `cp --reflink=never`.
    pub command: String,
    /// The version that it reports; empty if none.
    pub version: String,
    /// Seconds to copy an empty file. This start-up time is part of each sample.
    pub startup: f64,
}

/// The runner for `cp`, and the files for measuring its start-up time.
#[derive(Clone, Copy)]
pub struct CpSite<'p> {
    pub runner: CommandRunner<'p>,
    /// An empty file.
    pub empty: &'p Path,
    /// The path of every copy. No file exists there before a copy.
    pub copy: &'p Path,
}

impl Cp {
    /// Finds the system's `cp` and the first of these option sets that it accepts. Tries them by copying an empty file.
    pub fn find(options: &[&str], site: &CpSite<'_>) -> Result<Self, String> {
        let empty = site.empty;
        std::fs::write(empty, "").map_err(|e| format!("{}: {e}", empty.display()))?;
        let mut refusal = String::new();
        for options in options {
            let command = format!("cp {options}").trim_end().to_owned();
            let cp = Self { command, version: String::new(), startup: 0.0 };
            match cp.start(site) {
                Ok(startup) => return Ok(Self { version: version(), startup, ..cp }),
                Err(failure) => refusal = Unfit::from(failure).reason,
            }
        }
        Err(refusal)
    }

    /// Returns the seconds to copy an empty file, and removes the copy.
    fn start(&self, site: &CpSite<'_>) -> Result<f64, SampleFailure> {
        let done = self.run(site.empty, site);
        remove(site.copy);
        done.map(|sample| sample.wall_seconds())
    }

    fn run(&self, source: &Path, site: &CpSite<'_>) -> Result<Sample, SampleFailure> {
        let mut words = self.command.split(' ');
        let mut command = Command::new(words.next().unwrap_or("cp"));
        command.args(words).arg("--").args([source, site.copy]).env("LC_ALL", "C");
        site.runner.once(&mut command).map(|ran| ran.sample)
    }
}

/// `cp` as an arm. Each sample includes the start-up time of `cp`. Before each sample, a copy of an empty file measures
/// that time separately.
pub struct CpArm<'p> {
    pub cp: &'p Cp,
    pub site: CpSite<'p>,
    pub source: &'p Path,
    pub bytes: u64,
    /// Verifies the copy.
    pub checked: &'p dyn Fn() -> Result<(), Unfit>,
    /// The start-up times so far, in seconds.
    pub starts: &'p RefCell<Vec<f64>>,
}

impl Arm for CpArm<'_> {
    fn sample(&mut self, _repeats: u32) -> Result<Sample, SampleFailure> {
        remove(self.site.copy);
        let started = self.cp.start(&self.site)?;
        self.starts.borrow_mut().push(started);
        Ok(Sample { bytes: self.bytes, ..self.cp.run(self.source, &self.site)? })
    }

    fn check(&mut self) -> Result<(), Unfit> {
        (self.checked)()
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
    use crate::arms::command::Outputs;

    #[test]
    fn unknown_options_are_passed_over_and_a_failure_has_its_words() {
        let folder = tempfile::tempdir().unwrap();
        let (from, copy) = (folder.path().join("from"), folder.path().join("to"));
        std::fs::write(&from, "bytes").unwrap();
        let outputs = Outputs::inside(folder.path(), "cp").unwrap();
        let empty = folder.path().join("empty");
        let runner = CommandRunner::of_copies(&outputs, &|| Ok(()));
        let site = CpSite { runner, empty: &empty, copy: &copy };
        let cp = Cp::find(&["--no-such-option", ""], &site).unwrap();
        assert_eq!(cp.command, "cp");
        assert!(cp.startup > 0.0 && !copy.exists());
        let sample = cp.run(&from, &site).unwrap();
        assert!(sample.wall_seconds() > 0.0 && sample.faults() > 0, "{sample:?}");
        assert_eq!(std::fs::read(&copy).unwrap(), b"bytes");
        let words = Unfit::from(cp.run(&folder.path().join("none"), &site).unwrap_err()).reason;
        assert!(words.contains("No such file"), "{words}");
    }
}

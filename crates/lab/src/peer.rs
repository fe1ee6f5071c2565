//! The system's own `cp`, as an arm to compare with: a fresh process each time.

use serde::Serialize;
use std::{
    path::Path,
    process::{Command, Stdio},
};

/// A `cp` that works here.
#[derive(Clone, Debug, Serialize)]
pub struct Cp {
    /// The command without its operands: `cp --reflink=never`.
    pub command: String,
    /// What it says of itself; empty if nothing.
    pub version: String,
}

impl Cp {
    /// The first of these sets of options that copies `sample` to `copy`; what it made is removed.
    pub fn find(options: &[&str], sample: &Path, copy: &Path) -> Result<Self, String> {
        let mut refusal = String::new();
        for options in options {
            let cp =
                Self { command: format!("cp {options}").trim_end().to_owned(), version: version() };
            match cp.run(sample, copy) {
                Ok(()) => {
                    remove(copy);
                    return Ok(cp);
                }
                Err(reason) => refusal = reason,
            }
        }
        Err(refusal)
    }

    /// Copies.
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
        let cp = Cp::find(&["--no-such-option", ""], &from, &to).unwrap();
        assert_eq!(cp.command, "cp");
        assert!(!to.exists());
        cp.run(&from, &to).unwrap();
        assert_eq!(std::fs::read(&to).unwrap(), b"bytes");
        let words = cp.run(&folder.path().join("none"), &to).unwrap_err();
        assert!(words.contains("No such file"), "{words}");
    }
}

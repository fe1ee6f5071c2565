//! The work `program`: a whole command for each operation, as a user would run it. A sample includes starting the
//! process and all its resource usage.

use serde::Deserialize;
use std::{
    path::{Path, PathBuf},
    process::Command,
};
use thalweg_core::{Guarantees, Unfit};

use super::{Arm, ArmJob, ArmKind, Spec, parameters, volume::Volume};
use thalweg_measure::arms::{
    command::{CommandRunner, Outputs, fill, find},
    content::{self, ByteContent},
};
use thalweg_measure::{sample::Sample, schedule::SampleFailure, scratch::remove};

/// The placeholder for the thalweg binary that runs the study.
const OURS: &str = "{thalweg}";

/// A command that copies a file.
pub(super) static PROGRAM: ArmKind = ArmKind { name: "program", parse };

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProgramParameters {
    /// The program and its arguments. `{source}` and `{sink}` stand for the two files; `{thalweg}` as the program
    /// stands for this binary.
    command: Vec<String>,
    /// The file system of both files.
    #[serde(default = "scratch")]
    place: String,
    /// `true` if the command is known to share pages; otherwise the result counts as copied.
    #[serde(default)]
    shares: bool,
}

fn scratch() -> String {
    "scratch".to_owned()
}

fn parse(with: &toml::Table) -> Result<Box<dyn Spec>, Unfit> {
    let with: ProgramParameters = parameters(PROGRAM.name, with)?;
    for name in ["{source}", "{sink}"] {
        if !with.command.iter().skip(1).any(|word| word.contains(name)) {
            return Err(Unfit::because(format!(
                "parameters of program: `command` does not contain {name}"
            )));
        }
    }
    Ok(Box::new(with))
}

impl Spec for ProgramParameters {
    fn open(&self, job: &ArmJob<'_>) -> Result<Box<dyn Arm>, Unfit> {
        let name = &self.command[0];
        let found = if name == OURS { Ok(job.program.to_owned()) } else { find(name.as_ref()) };
        let program = found.map_err(|why| Unfit::because(format!("{name}: {why}")))?;
        let place = Volume::find(&self.place, job.scratch)?;
        let failed = |e| Unfit::because(format!("{}: {e}", place.path().display()));
        Ok(Box::new(RunningProgram {
            program,
            command: self.command.clone(),
            source: job.file(place.path(), "from"),
            sink: job.file(place.path(), "to"),
            outputs: Outputs::inside(place.path(), "program").map_err(failed)?,
            bytes: job.bytes,
            shares: self.shares,
            place,
        }))
    }
}

struct RunningProgram {
    program: PathBuf,
    command: Vec<String>,
    source: PathBuf,
    sink: PathBuf,
    // Contains the file for the command's standard error.
    outputs: Outputs,
    bytes: u64,
    shares: bool,
    // Keeps the directory alive.
    place: Volume,
}

impl Arm for RunningProgram {
    fn promises(&self) -> Option<Guarantees> {
        Some(if self.shares { Guarantees::SHARED } else { Guarantees::COPIED })
    }

    /// Returns `true`: each operation starts a new process, which faults on its own pages.
    fn is_fresh(&self) -> bool {
        true
    }

    fn warm_up(&mut self) -> Result<(), Unfit> {
        let made = content::own_file(&self.source, self.bytes);
        let failed =
            |e| format!("cannot create the source in {}: {e}", self.place.path().display());
        made.map_err(|e| Unfit::because(failed(e)))?;
        self.once()?;
        Ok(())
    }

    fn sample(&mut self, repeats: u32) -> Result<Sample, SampleFailure> {
        Sample::of_batches(repeats, 1, |_| self.once())
    }

    /// Runs the program once more and verifies the result. All earlier runs were verified when they ended.
    fn check(&mut self) -> Result<(), Unfit> {
        self.once()?;
        Ok(())
    }
}

impl RunningProgram {
    fn look(&self) -> Result<(), Unfit> {
        let checked = content::check(&self.sink, ByteContent::Pattern, 0, self.bytes);
        checked.map_err(|what| Unfit::because(format!("{}: {what}", self.command[0])))
    }

    /// Runs once. The copy is removed right after verification: otherwise its writeback would make the next command
    /// wait for the disk.
    fn once(&mut self) -> Result<Sample, SampleFailure> {
        remove(&self.sink);
        let ran = CommandRunner::of_copies(&self.outputs, &|| Ok(())).once(&mut self.process())?;
        self.look()?;
        remove(&self.sink);
        Ok(Sample { bytes: self.bytes, ..ran.sample })
    }

    fn process(&self) -> Command {
        let mut command = Command::new(&self.program);
        let filled = |word: &Path| {
            let word = fill(word.as_os_str(), "{source}", self.source.as_os_str());
            fill(&word, "{sink}", self.sink.as_os_str())
        };
        command.args(self.command[1..].iter().map(|word| filled(word.as_ref())));
        command.env("LC_ALL", "C");
        command
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        for path in [&self.source, &self.sink] {
            remove(path);
        }
    }
}

#[cfg(test)]
mod tests;

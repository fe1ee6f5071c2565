//! Work `program`: a whole command for each operation, as a user would run it. Starting it is part
//! of the sample; so is everything its process uses.

use serde::Deserialize;
use std::{
    fs::File,
    io,
    path::PathBuf,
    process::{Command, ExitStatus, Stdio},
};
use thalweg_core::{Guarantees, Unfit};

use super::{
    Arm, ArmKind, Job,
    command::{fill, find},
    content::{self, Content},
    parameters,
    place::Place,
};
use crate::{
    measure::{
        sample::{Meter, Sample},
        schedule::Failure,
    },
    peer::remove,
};

/// A command that copies a file.
pub(super) struct Program;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct With {
    /// The program and its arguments; `{source}` and `{sink}` stand for the two files.
    command: Vec<String>,
    /// The file system of both files.
    #[serde(default = "scratch")]
    place: String,
    /// What the copy is to its source: `copied` unless the command is known to share pages.
    #[serde(default)]
    shares: bool,
}

fn scratch() -> String {
    "scratch".to_owned()
}

impl ArmKind for Program {
    fn name(&self) -> &'static str {
        "program"
    }

    fn summary(&self) -> &'static str {
        "a command that makes {sink} out of {source}, a fresh process for each operation"
    }

    fn open(&self, job: &Job<'_>) -> Result<Box<dyn Arm>, Unfit> {
        let with: With = parameters(self.name(), job.with)?;
        for name in ["{source}", "{sink}"] {
            if !with.command.iter().skip(1).any(|word| word.contains(name)) {
                return Err(Unfit::because(format!("parameters of program: no {name} in command")));
            }
        }
        let name = &with.command[0];
        let found = find(name.as_ref());
        let program = found.map_err(|why| Unfit::because(format!("{name}: {why}")))?;
        let place = Place::find(&with.place, job.scratch)?;
        let file = |what| place.path().join(format!("{what}-{}", job.arm.replace('/', "-")));
        let (source, sink, words) = (file("from"), file("to"), file("words"));
        let (bytes, shares) = (job.bytes, with.shares);
        let running =
            Running { program, command: with.command, source, sink, words, bytes, shares, place };
        Ok(Box::new(running))
    }
}

struct Running {
    program: PathBuf,
    command: Vec<String>,
    source: PathBuf,
    sink: PathBuf,
    // Where its stderr goes.
    words: PathBuf,
    bytes: u64,
    shares: bool,
    // Keeps the folder.
    place: Place,
}

impl Arm for Running {
    fn promises(&self) -> Option<Guarantees> {
        Some(if self.shares { Guarantees::SHARED } else { Guarantees::COPIED })
    }

    /// A new process faults for its own pages.
    fn is_fresh(&self) -> bool {
        true
    }

    fn warm_up(&mut self) -> Result<(), Unfit> {
        let made = content::own_file(&self.source, self.bytes);
        let failed = |e| format!("making the source in {}: {e}", self.place.path().display());
        made.map_err(|e| Unfit::because(failed(e)))?;
        self.once().map(|_| ())
    }

    fn sample(&mut self, repeats: u32) -> Result<Sample, Failure> {
        let mut sum = self.once()?;
        for _ in 1..repeats {
            sum += self.once()?;
        }
        Ok(sum)
    }

    fn check(&mut self) -> Result<(), Unfit> {
        self.once()?;
        let checked = content::check(&self.sink, Content::Pattern, (0, self.bytes));
        checked.map_err(|what| Unfit::because(format!("{}: {what}", self.command[0])))
    }
}

impl Running {
    fn once(&mut self) -> Result<Sample, Unfit> {
        remove(&self.sink);
        let failed = |e: io::Error| Unfit::because(format!("{}: {e}", self.command[0]));
        let mut command = self.process().map_err(failed)?;
        let meter = Meter::start();
        let status = command.status();
        let sample = meter.stop(self.bytes);
        self.judged(status.map_err(failed)?).map(|()| sample)
    }

    fn process(&self) -> io::Result<Command> {
        let mut command = Command::new(&self.program);
        for word in &self.command[1..] {
            let word = fill(word.as_ref(), "{source}", self.source.as_os_str());
            command.arg(fill(&word, "{sink}", self.sink.as_os_str()));
        }
        let words = File::create(&self.words)?;
        command.env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::null()).stderr(words);
        Ok(command)
    }

    fn judged(&self, status: ExitStatus) -> Result<(), Unfit> {
        if status.success() {
            return Ok(());
        }
        let words = std::fs::read(&self.words).unwrap_or_default();
        let words = String::from_utf8_lossy(&words[..words.len().min(1000)]);
        let command = self.command.join(" ");
        Err(Unfit::because(format!("{command}: {status}: {}", words.trim())))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for path in [&self.source, &self.sink, &self.words] {
            remove(path);
        }
    }
}

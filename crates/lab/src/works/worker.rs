//! An external program that does and times the work itself, in any language: the worker protocol of
//! docs/formats.md. A C source is built first, one of ours lies beside our own binary. What the program
//! says of itself is not believed where it can be checked: its time lies within ours, its bytes are
//! looked at by its own `check`.

mod build;
mod packages;
mod reply;
mod talk;

use serde::Deserialize;
use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use thalweg_core::{Guarantees, Unfit, alias::Alias};

use super::{Job, Piece, Work, parameters};
use crate::{
    rounds::Failure,
    sample::{Meter, Sample},
};
use build::Flags;
use packages::Packages;
use talk::Talk;

/// An external program.
pub struct Worker;

/// The parameters of an arm.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    /// A C source below the studies, any other program below them (with a slash), one of ours
    /// (`thalweg-NAME`, beside our own binary), or a command.
    program: PathBuf,
    /// For the compiler.
    #[serde(default)]
    cflags: Vec<String>,
    /// Packages whose flags the compiler gets too: the name for pkg-config, and the one under which
    /// Debian installs it.
    #[serde(default)]
    pkg_config: BTreeMap<String, String>,
    /// For the program, before `bytes=N` and `scratch=DIR`.
    #[serde(default)]
    args: Vec<String>,
    /// What the way promises; left out where the question makes no sense.
    promises: Option<Promises>,
    /// Seconds after which an answer is not waited for any longer.
    #[serde(default = "patience")]
    deadline_seconds: u32,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Promises {
    stable: bool,
    private: bool,
}

/// Long for any sample, short for somebody who waits at a terminal.
fn patience() -> u32 {
    120
}

impl Work for Worker {
    fn name(&self) -> &'static str {
        "worker"
    }

    fn summary(&self) -> &'static str {
        "an external program, a C source or any other, that speaks the worker protocol"
    }

    fn open(&self, job: &Job<'_>) -> Result<Box<dyn Piece>, Unfit> {
        Ok(Box::new(Running::start(job)?))
    }
}

/// A program that was started, and has said hello.
pub(super) struct Running {
    talk: Talk,
    promises: Option<Guarantees>,
    faults: bool,
}

impl Running {
    /// Builds and starts what the job's parameters name.
    pub fn start(job: &Job<'_>) -> Result<Self, Unfit> {
        let with: Parameters = parameters("worker", job.with)?;
        // It is started elsewhere: what is relative here is not relative there.
        let absolute = |path: &Path| {
            std::path::absolute(path).map_err(|e| unfit(job, &format!("{}: {e}", path.display())))
        };
        let (studies, folder) = (absolute(job.studies)?, absolute(job.scratch)?);
        let program = place(&Job { studies: &studies, scratch: &folder, ..*job }, &with)?;
        let mut command = Command::new(&program);
        let mut scratch = OsString::from("scratch=");
        scratch.push(&folder);
        command.current_dir(&studies).args(&with.args);
        command.arg(format!("bytes={}", job.bytes)).arg(scratch);
        let patience = Duration::from_secs(u64::from(with.deadline_seconds));
        let name = with.program.display().to_string();
        let mut talk = Talk::start(command, name, patience)?;
        let hello = talk.ask("hello")?;
        let faults = reply::hello(&hello).map_err(|words| talk.nonsense("hello", &words))?;
        let promises = with.promises.map(|p| Guarantees {
            stable: p.stable,
            private: p.private,
            durable: false,
        });
        Ok(Self { talk, promises, faults })
    }

    /// Bytes of memory of all its processes; `None` where it does not know.
    pub fn memory(&mut self) -> Result<Option<u64>, Unfit> {
        let line = self.talk.ask("memory")?;
        reply::memory(&line).map_err(|words| self.talk.nonsense("memory", &words))
    }
}

/// What the name of a program of ours begins with.
const OURS: &str = "thalweg-";

/// Where the program lies; a C source is built.
fn place(job: &Job<'_>, with: &Parameters) -> Result<PathBuf, Unfit> {
    let program = &with.program;
    if program.extension().is_some_and(|extension| extension == "c") {
        let built = Packages::find(&with.pkg_config).and_then(|packages| {
            let flags = Flags { own: &with.cflags, packages };
            build::built(&job.studies.join(program), &flags, job.scratch)
        });
        return built.map_err(|reason| unfit(job, &reason));
    }
    if !with.cflags.is_empty() || !with.pkg_config.is_empty() {
        return Err(unfit(job, "cflags and pkg_config are for a C source, and it is none"));
    }
    let is_path = program.parent().is_some_and(|parent| parent != Path::new(""));
    match program.to_str() {
        _ if is_path => Ok(job.studies.join(program)),
        Some(name) if name.starts_with(OURS) => {
            beside(job.program, name).map_err(|reason| unfit(job, &reason))
        }
        _ => Ok(program.clone()),
    }
}

/// A program of ours, of the same build as our own binary.
fn beside(own: &Path, name: &str) -> Result<PathBuf, String> {
    let path = own.with_file_name(name);
    if path.is_file() {
        return Ok(path);
    }
    let path = path.display();
    Err(format!(
        "{path} is not there: `make build` builds it for release, `cargo build --package {name}` \
         for a debug build; or copy it there"
    ))
}

fn unfit(job: &Job<'_>, reason: &str) -> Unfit {
    Unfit::because(format!("worker {}: {reason}", job.arm))
}

impl Piece for Running {
    fn promises(&self) -> Option<Guarantees> {
        self.promises
    }

    fn is_fresh(&self) -> bool {
        self.faults
    }

    fn warm_up(&mut self) -> Result<(), Unfit> {
        let line = self.talk.ask("warm")?;
        reply::done(&line).map_err(|words| self.talk.nonsense("warm", &words))
    }

    fn sample(&mut self, repeats: u32) -> Result<Sample, Failure> {
        let command = format!("run {repeats}");
        let meter = Meter::start();
        let line = self.talk.ask(&command).map_err(Failure::Unfit)?;
        reply::sample(&line, meter.stop(0))
            .map_err(|words| Failure::Unfit(self.talk.nonsense(&command, &words)))
    }

    fn check(&mut self) -> Result<(), Unfit> {
        let line = self.talk.ask("check")?;
        match line.strip_prefix("wrong ") {
            Some(what) => Err(Unfit::because(format!("{}: {what}", self.talk.name()))),
            None => reply::done(&line).map_err(|words| self.talk.nonsense("check", &words)),
        }
    }

    fn alias(&mut self) -> Option<Result<Alias, Unfit>> {
        let answer = self.talk.ask("alias").and_then(|line| {
            reply::alias(&line).map_err(|words| self.talk.nonsense("alias", &words))
        });
        answer.transpose()
    }
}

#[cfg(test)]
mod tests;

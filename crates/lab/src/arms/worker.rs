//! An external program, in any language, that does and times the work itself, with the worker protocol of
//! docs/reference/formats.md. A C or Java source is built first; a program of thalweg is next to our own binary. The
//! program's reports are verified where possible: its time must not exceed the time that we measure, and its own
//! `check` verifies the bytes.

mod build;
mod calls;
mod clocks;
mod cold;
mod java;
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

use super::{Arm, ArmJob, ArmKind, Spec, parameters};
use build::CompilerFlags;
use calls::Calls;
use clocks::Clocks;
use packages::Packages;
use talk::Talk;
use thalweg_measure::{
    sample::{CallsKind, Sample, SampleMeter},
    schedule::SampleFailure,
};

pub static WORKER: ArmKind = ArmKind { name: "worker", parse };

/// The parameters of an arm (a compared variant).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkerParameters {
    /// One of four: a C or Java source in the directory of the studies; another program there (with a slash); a program
    /// of thalweg (`thalweg-NAME`, next to our own binary); or a command.
    program: PathBuf,
    #[serde(default)]
    cflags: Vec<String>,
    /// Packages that the compiler gets flags for: the pkg-config name and the Debian package name.
    #[serde(default)]
    pkg_config: BTreeMap<String, String>,
    /// The feature release of the JDK that builds and runs a Java source.
    jdk: Option<u32>,
    /// Options for the Java virtual machine.
    #[serde(default)]
    java_args: Vec<String>,
    /// Directories of further Java sources to compile, relative to the directory of the studies.
    #[serde(default)]
    java_sources: Vec<PathBuf>,
    /// A C source for a second process, which the Java program starts: `peer=PATH` is added to its arguments.
    peer: Option<PathBuf>,
    /// `true` if every operation runs in a new process, in which no code has run before.
    #[serde(default)]
    cold: bool,
    /// Arguments of the program, before `bytes=N` and `scratch=DIR`.
    #[serde(default)]
    args: Vec<String>,
    /// The guarantees of the method; omitted if the question does not apply.
    promises: Option<Promises>,
    /// Timeout for an answer, in seconds.
    #[serde(default = "patience")]
    deadline_seconds: u32,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Promises {
    stable: bool,
    private: bool,
}

impl WorkerParameters {
    fn read(with: &toml::Table) -> Result<Self, Unfit> {
        let with: Self = parameters("worker", with)?;
        let refuse = |reason: &str| {
            let program = with.program.display();
            Err(Unfit::because(format!("parameters of worker {program}: {reason}")))
        };
        let kind = with.kind();
        let has_c = kind == Some("c") || with.peer.is_some();
        let for_c = !with.cflags.is_empty() || !with.pkg_config.is_empty();
        if for_c && !has_c {
            return refuse("cflags and pkg_config need a C source");
        }
        let for_java = with.jdk.is_some() || !with.java_args.is_empty() || with.peer.is_some();
        if kind != Some("java") && (for_java || !with.java_sources.is_empty()) {
            return refuse(
                "jdk, java_args, java_sources and peer are allowed only for a Java source",
            );
        }
        if with.args.iter().any(|word| word.starts_with("bytes=") || word.starts_with("scratch=")) {
            return refuse("args must not contain bytes= or scratch=: thalweg adds both");
        }
        if kind == Some("java") && with.jdk.is_none() {
            return refuse(
                "a Java source needs jdk, the release of the JDK that builds and runs it",
            );
        }
        Ok(with)
    }

    /// Returns the extension of the program's name.
    fn kind(&self) -> Option<&str> {
        self.program.extension().and_then(|extension| extension.to_str())
    }
}

/// Returns the default timeout in seconds: longer than any sample, but short for a user at a terminal.
fn patience() -> u32 {
    120
}

fn parse(with: &toml::Table) -> Result<Box<dyn Spec>, Unfit> {
    Ok(Box::new(WorkerParameters::read(with)?))
}

impl Spec for WorkerParameters {
    fn open(&self, job: &ArmJob<'_>) -> Result<Box<dyn Arm>, Unfit> {
        let launch = Launch::prepare(job, self)?;
        let running = launch.start()?;
        // `running` has shown that the program starts. A cold arm starts a new process for each operation instead.
        Ok(if launch.cold { Box::new(cold::ColdWorker::of(launch)) } else { Box::new(running) })
    }
}

/// A built program with its arguments, which can be started repeatedly.
struct Launch {
    program: PathBuf,
    /// Arguments before those of the protocol: options of a virtual machine, and those of the study.
    words: Vec<OsString>,
    studies: PathBuf,
    name: String,
    patience: Duration,
    promises: Option<Guarantees>,
    cold: bool,
}

impl Launch {
    /// Builds the program of the job's parameters.
    fn prepare(job: &ArmJob<'_>, with: &WorkerParameters) -> Result<Self, Unfit> {
        // The program runs in another working directory, so relative paths must be made absolute.
        let absolute = |path: &Path| {
            std::path::absolute(path).map_err(|e| unfit(job, &format!("{}: {e}", path.display())))
        };
        let (studies, folder) = (absolute(job.studies)?, absolute(job.scratch)?);
        let job = ArmJob { studies: &studies, scratch: &folder, ..*job };
        let (program, mut words) = command_of(&job, with)?;
        let mut scratch = OsString::from("scratch=");
        scratch.push(&folder);
        words.extend(with.args.iter().map(OsString::from));
        if let Some(peer) = &with.peer {
            let built = c_program(&job, with, peer).map_err(|reason| unfit(&job, &reason))?;
            let mut word = OsString::from("peer=");
            word.push(built);
            words.push(word);
        }
        words.extend([format!("bytes={}", job.bytes).into(), scratch]);
        let promises = with.promises.map(|p| Guarantees {
            stable: p.stable,
            private: p.private,
            durable: false,
        });
        let patience = Duration::from_secs(u64::from(with.deadline_seconds));
        let name = with.program.display().to_string();
        Ok(Self { program, words, studies, name, patience, promises, cold: with.cold })
    }

    /// Starts the program and reads its answer to `hello`.
    fn start(&self) -> Result<RunningWorker, Unfit> {
        let mut command = Command::new(&self.program);
        command.current_dir(&self.studies).args(&self.words);
        let mut talk = Talk::start(command, self.name.clone(), self.patience)?;
        let hello = talk.ask("hello")?;
        let faults = reply::hello(&hello).map_err(|words| talk.nonsense("hello", &words))?;
        Ok(RunningWorker {
            talk,
            promises: self.promises,
            faults,
            calls: None,
            clocks: Clocks::default(),
        })
    }
}

/// A running program that has answered `hello`.
pub(super) struct RunningWorker {
    talk: Talk,
    promises: Option<Guarantees>,
    faults: bool,
    /// The kernel's counts, or the reason why they are unavailable; `None` until they are first needed.
    calls: Option<Result<Calls, String>>,
    clocks: Clocks,
}

impl RunningWorker {
    /// Builds and starts the program of the job's parameters.
    pub fn start(job: &ArmJob<'_>) -> Result<Self, Unfit> {
        Launch::prepare(job, &WorkerParameters::read(job.with)?)?.start()
    }

    /// Returns the kernel's count of calls until now. The first call finds out whether the kernel counts them.
    fn calls_so_far(&mut self) -> Result<Option<u64>, Unfit> {
        if self.calls.is_none() {
            let talk = &mut self.talk;
            self.calls = Some(Calls::find(talk.process_group(), || talk.ask("hello").map(|_| ()))?);
        }
        Ok(match &mut self.calls {
            Some(Ok(calls)) => calls.now().ok(),
            _ => None,
        })
    }

    fn calls_since(&mut self, before: Option<u64>) -> Option<u64> {
        self.calls.as_mut()?.as_mut().ok()?.since(before?)
    }

    /// Returns the memory of all processes of the worker, in bytes; `None` if unknown.
    pub fn memory(&mut self) -> Result<Option<u64>, Unfit> {
        let line = self.talk.ask("memory")?;
        reply::memory(&line).map_err(|words| self.talk.nonsense("memory", &words))
    }
}

/// The prefix of thalweg's own programs.
const OURS: &str = "thalweg-";

/// Returns the path of the program, and its first arguments. Builds the program if it is a source.
fn command_of(
    job: &ArmJob<'_>,
    with: &WorkerParameters,
) -> Result<(PathBuf, Vec<OsString>), Unfit> {
    let program = &with.program;
    let is_path = program.parent().is_some_and(|parent| parent != Path::new(""));
    let found = match (with.kind(), program.to_str()) {
        (Some("java"), _) => {
            return java::built(job, with).map_err(|reason| unfit(job, &reason));
        }
        (Some("c"), _) => c_program(job, with, program),
        _ if is_path => Ok(job.studies.join(program)),
        (_, Some(name)) if name.starts_with(OURS) => beside(job.program, name),
        _ => Ok(program.clone()),
    };
    found.map(|program| (program, Vec::new())).map_err(|reason| unfit(job, &reason))
}

/// Builds a C source with the flags of the parameters.
fn c_program(job: &ArmJob<'_>, with: &WorkerParameters, source: &Path) -> Result<PathBuf, String> {
    let packages = Packages::find(&with.pkg_config)?;
    let flags = CompilerFlags { own: &with.cflags, packages };
    build::built(&job.studies.join(source), &flags, job.scratch)
}

/// Returns a program of thalweg from the directory of our own binary.
fn beside(own: &Path, name: &str) -> Result<PathBuf, String> {
    let path = own.with_file_name(name);
    if path.is_file() {
        return Ok(path);
    }
    let path = path.display();
    Err(format!(
        "{path} does not exist: `make build` builds it for release, `cargo build --package {name}` \
         for a debug build; or copy it there"
    ))
}

fn unfit(job: &ArmJob<'_>, reason: &str) -> Unfit {
    Unfit::because(format!("worker {}: {reason}", job.arm))
}

impl Arm for RunningWorker {
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

    fn sample(&mut self, repeats: u32) -> Result<Sample, SampleFailure> {
        let command = format!("run {repeats}");
        let before = self.calls_so_far()?;
        let meter = SampleMeter::start();
        let line = self.talk.ask(&command)?;
        let seen = meter.stop(0);
        let sample = reply::sample(&line, seen)
            .map_err(|words| SampleFailure::Unfit(self.talk.nonsense(&command, &words)))?;
        self.clocks.compare(sample.wall, seen.wall);
        if sample.calls.is_some() {
            return Ok(sample);
        }
        Ok(Sample { calls: self.calls_since(before), calls_kind: CallsKind::ReadWrite, ..sample })
    }

    fn doubt(&self) -> Option<String> {
        self.clocks.doubt()
    }

    fn calls_uncounted(&self) -> Option<String> {
        self.calls.as_ref()?.as_ref().err().cloned()
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

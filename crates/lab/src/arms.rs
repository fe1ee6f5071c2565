//! The kinds of work that an arm of a study (a compared variant) can do, and the probes that decide claims without
//! measuring time.
//!
//! Each work is one source file and one line in [`ARM_KINDS`]. A study selects a work by name and passes it a table
//! of parameters.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::path::{Path, PathBuf};
use thalweg_core::Unfit;

pub use thalweg_measure::schedule::Arm;

pub(crate) mod bulk;
pub(crate) mod far;
pub(crate) mod knobs;
pub(crate) mod memory;
mod null;
mod probes;
mod program;
pub(crate) mod transfer;
pub(crate) mod volume;
mod worker;

/// An entry of a list from which studies select by name. `S` are its validated parameters.
pub struct NamedParser<S: ?Sized + 'static> {
    /// The name used in study files.
    pub name: &'static str,
    /// Parses and validates the parameters of a study. The validation does not depend on the machine, so a wrong study
    /// is rejected before anything runs.
    pub parse: fn(&toml::Table) -> Result<Box<S>, Unfit>,
}

/// A kind of arm (a "work" in study files): creates arms from the parameters of a study.
pub type ArmKind = NamedParser<dyn Spec>;

/// Decides a claim about a mechanism by trying it and observing the result, without measuring time.
pub type Probe = NamedParser<dyn ProbeSpec>;

impl ArmKind {
    /// Parses the parameters of `job` and opens an arm.
    pub fn open(&self, job: &ArmJob<'_>) -> Result<Box<dyn Arm>, Unfit> {
        (self.parse)(job.with)?.open(job)
    }
}

impl Probe {
    /// Parses the parameters of `job` and runs the probe.
    pub fn run(&self, job: &ArmJob<'_>) -> Result<ProbeFinding, Unfit> {
        (self.parse)(job.with)?.look(job)
    }
}

/// Validated parameters of an arm.
pub trait Spec {
    /// Creates the arm, and what must exist before its buffers: helper processes and built programs. The error names
    /// what this machine lacks.
    fn open(&self, job: &ArmJob<'_>) -> Result<Box<dyn Arm>, Unfit>;
}

/// Everything that is needed to open an arm or to run a probe.
#[derive(Clone, Copy, Debug)]
pub struct ArmJob<'j> {
    /// The arm's name, for messages.
    pub arm: &'j str,
    pub with: &'j toml::Table,
    pub bytes: u64,
    /// Directory for temporary files; removed after the session.
    pub scratch: &'j Path,
    /// The directory of the study file. Programs that must be built are below it.
    pub studies: &'j Path,
    /// The thalweg binary, for helper processes.
    pub program: &'j Path,
}

impl ArmJob<'_> {
    /// Returns a path in `folder` that no other arm uses.
    pub(crate) fn file(&self, folder: &Path, what: &str) -> PathBuf {
        folder.join(format!("{what}-{}", self.arm.replace('/', "-")))
    }
}

/// Validated parameters of a probe.
pub trait ProbeSpec {
    fn look(&self, job: &ArmJob<'_>) -> Result<ProbeFinding, Unfit>;
}

/// The result of a probe.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ProbeFinding {
    /// The numbers to compare with the range of a claim.
    pub numbers: Vec<f64>,
    pub text: String,
}

/// The works and probes that a study file can name.
#[derive(Clone, Copy)]
pub struct Catalogue {
    pub arm_kinds: &'static [&'static ArmKind],
    pub probes: &'static [&'static Probe],
}

pub static CATALOGUE: Catalogue = Catalogue { arm_kinds: ARM_KINDS, probes: PROBES };

pub static ARM_KINDS: &[&ArmKind] = &[
    &bulk::BULK,
    &memory::MEMORY,
    &null::NULL,
    &program::PROGRAM,
    &transfer::TRANSFER,
    &worker::WORKER,
];

pub static PROBES: &[&Probe] = &[
    &probes::alias::ALIAS,
    &probes::bulk_memory::BULK_MEMORY,
    &probes::calls::CALLS_PER_BUFFER,
    &probes::rdtsc_small::RDTSC_SMALL,
    &probes::splice_returns::SPLICE_RETURNS,
    &probes::vmsplice::DIRECTIONS,
    &probes::vmsplice::LIMIT,
    &probes::worker_memory::WORKER_MEMORY,
];

/// Returns the names of the size distributions that the work `memory` supports.
pub fn size_distributions() -> impl Iterator<Item = &'static str> {
    memory::Distribution::names()
}

impl Catalogue {
    pub fn arm_kind(&self, name: &str) -> Option<&'static ArmKind> {
        self.arm_kinds.iter().copied().find(|kind| kind.name == name)
    }

    pub fn probe(&self, name: &str) -> Option<&'static Probe> {
        self.probes.iter().copied().find(|probe| probe.name == name)
    }
}

/// Returns an error that names the first unknown parameter and lists the known ones.
pub fn known(with: &toml::Table, names: &[&str]) -> Result<(), Unfit> {
    let Some(unknown) = with.keys().find(|key| !names.contains(&key.as_str())) else {
        return Ok(());
    };
    let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Err(Unfit::because(format!("unknown parameter {unknown}; known: {known}")))
}

/// Deserializes the parameters of a work or probe into `With`. The error names the wrong parameter.
pub(crate) fn parameters<With: DeserializeOwned>(
    of: &str,
    with: &toml::Table,
) -> Result<With, Unfit> {
    with.clone().try_into().map_err(|e: toml::de::Error| {
        let words = e.to_string();
        let words: Vec<&str> = words.split_whitespace().collect();
        Unfit::because(format!("parameters of {of}: {}", words.join(" ")))
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{fs::OpenOptions, io::Write};

    /// Reports a skipped test on stderr, and in the file `$THALWEG_SKIPS`, which `make test` prints at its end.
    pub fn skip(test: &str, reason: &str) {
        eprintln!("skipped: lab {test}: {reason}");
        let Some(path) = std::env::var_os("THALWEG_SKIPS") else { return };
        let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        writeln!(file, "lab {test}: {reason}").unwrap();
    }
}

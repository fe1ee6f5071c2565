//! The works that arms of a study are made of, and the probes that decide claims without a clock.
//!
//! A work is one file and one line; a study chooses it by name and hands it a table of parameters.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::path::{Path, PathBuf};
use thalweg_core::Unfit;

pub use crate::measure::schedule::Arm;

pub(crate) mod bulk;
pub mod command;
pub(crate) mod content;
pub(crate) mod cp;
pub(crate) mod far;
pub(crate) mod knobs;
pub(crate) mod memory;
mod null;
mod probes;
mod program;
pub(crate) mod transfer;
pub(crate) mod volume;
mod worker;

/// Makes arms of one kind out of a study's parameters.
pub trait ArmKind: Sync {
    /// Its name in study files; the file's name with `-` for `_`.
    fn name(&self) -> &'static str;

    /// One line for the manual.
    fn summary(&self) -> &'static str;

    /// Reads the parameters of a study. What is wrong here is wrong on every machine, and the study is
    /// refused before anything runs.
    fn parse(&self, with: &toml::Table) -> Result<Box<dyn Spec>, Unfit>;

    /// An arm of these parameters.
    fn open(&self, job: &Job<'_>) -> Result<Box<dyn Arm>, Unfit> {
        self.parse(job.with)?.open(job)
    }
}

/// Parameters that were read.
pub trait Spec {
    /// Acquires what must exist before any buffer does: processes, built programs. What this machine
    /// lacks is the `Unfit`'s reason.
    fn open(&self, job: &Job<'_>) -> Result<Box<dyn Arm>, Unfit>;
}

/// What an arm is made of.
#[derive(Clone, Copy, Debug)]
pub struct Job<'j> {
    /// The arm's name, for messages.
    pub arm: &'j str,
    pub with: &'j toml::Table,
    pub bytes: u64,
    /// Where files may be made; removed after the session.
    pub scratch: &'j Path,
    /// The folder of the study file: programs that are built lie below it.
    pub studies: &'j Path,
    /// Our own binary, for helper processes.
    pub program: &'j Path,
}

impl Job<'_> {
    /// The name of a file that the arm alone has in this folder.
    pub(crate) fn file(&self, folder: &Path, what: &str) -> PathBuf {
        folder.join(format!("{what}-{}", self.arm.replace('/', "-")))
    }
}

/// Decides a claim of mechanism by doing it and looking, without a clock.
pub trait Probe: Sync {
    /// Its name in study files.
    fn name(&self) -> &'static str;

    /// One line for the manual.
    fn summary(&self) -> &'static str;

    /// Reads the parameters of a study, as [`ArmKind::parse`] does.
    fn parse(&self, with: &toml::Table) -> Result<Box<dyn Look>, Unfit>;

    /// Looks with these parameters.
    fn run(&self, job: &Job<'_>) -> Result<Finding, Unfit> {
        self.parse(job.with)?.look(job)
    }
}

/// The parameters of a probe that were read.
pub trait Look {
    fn look(&self, job: &Job<'_>) -> Result<Finding, Unfit>;
}

/// What a probe found.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Finding {
    /// The numbers that a claim's range is compared with.
    pub numbers: Vec<f64>,
    pub text: String,
}

/// The works and probes that study files may name.
#[derive(Clone, Copy)]
pub struct Catalogue {
    pub arm_kinds: &'static [&'static dyn ArmKind],
    pub probes: &'static [&'static dyn Probe],
}

pub static CATALOGUE: Catalogue = Catalogue { arm_kinds: ARM_KINDS, probes: PROBES };

pub static ARM_KINDS: &[&dyn ArmKind] = &[
    &bulk::Bulk,
    &memory::Memory,
    &null::Null,
    &program::Program,
    &transfer::Transfer,
    &worker::Worker,
];

pub static PROBES: &[&dyn Probe] = &[
    &probes::alias::AliasProbe,
    &probes::bulk_memory::BulkMemory,
    &probes::calls::CallsPerBuffer,
    &probes::rdtsc_small::RdtscSmall,
    &probes::splice_returns::SpliceReturns,
    &probes::vmsplice::Directions,
    &probes::vmsplice::Limit,
    &probes::worker_memory::WorkerMemory,
];

/// The distributions of sizes that the work `memory` can draw from.
pub fn size_distributions() -> impl Iterator<Item = &'static str> {
    memory::Distribution::names()
}

impl Catalogue {
    pub fn arm_kind(&self, name: &str) -> Option<&'static dyn ArmKind> {
        self.arm_kinds.iter().copied().find(|kind| kind.name() == name)
    }

    pub fn probe(&self, name: &str) -> Option<&'static dyn Probe> {
        self.probes.iter().copied().find(|probe| probe.name() == name)
    }
}

/// Refuses parameters that a work or probe does not know, naming those it does.
pub fn known(with: &toml::Table, names: &[&str]) -> Result<(), Unfit> {
    let Some(unknown) = with.keys().find(|key| !names.contains(&key.as_str())) else {
        return Ok(());
    };
    let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Err(Unfit::because(format!("unknown parameter {unknown}; known: {known}")))
}

/// The parameters of a work or a probe as its own type; the error names the one that is wrong.
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

    /// Notes that a test could not run here, in the file that `make test` prints at its end.
    pub fn skip(test: &str, reason: &str) {
        eprintln!("skipped: lab {test}: {reason}");
        let Some(path) = std::env::var_os("THALWEG_SKIPS") else { return };
        let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        writeln!(file, "lab {test}: {reason}").unwrap();
    }
}

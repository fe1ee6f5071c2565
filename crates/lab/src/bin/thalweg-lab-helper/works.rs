//! Works for tests only: a correct copy, and the faults that the lab must detect.

use std::{
    hint::black_box,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
};
use thalweg_core::{Guarantees, Unfit, alias::Alias};
use thalweg_lab::arms::{
    Arm, ArmJob, ArmKind, CATALOGUE, Catalogue, Probe, ProbeFinding, ProbeSpec, Spec, known,
};
use thalweg_measure::{
    sample::{Sample, SampleMeter},
    schedule::SampleFailure,
};

/// The works that only tests use, and the works of `thalweg study` that tests also need.
pub static PLANTED: Catalogue =
    Catalogue { arm_kinds: &[&NULL, &WORKER, &BULK, &COPY], probes: &[&ANSWER] };

static NULL: ArmKind = ArmKind { name: "null", parse: |with| product("null", with) };
static WORKER: ArmKind = ArmKind { name: "worker", parse: |with| product("worker", with) };
static BULK: ArmKind = ArmKind { name: "bulk", parse: |with| product("bulk", with) };

fn product(name: &str, with: &toml::Table) -> Result<Box<dyn Spec>, Unfit> {
    let own = CATALOGUE.arm_kind(name).ok_or_else(|| Unfit::because("it has no such work"))?;
    (own.parse)(with)
}

/// A copy in memory. `fault` plants a fault: `byte`, `cold`, `forks`, `fails`, `absent`, `dies`, or `breaks`
/// (guarantees a copy, but shares pages). `spawns` and `shares` are not faults; `shares` has weaker guarantees.
static COPY: ArmKind = ArmKind {
    name: "copy",
    parse: |with| {
        known(with, &["fault"])?;
        let fault = with.get("fault").and_then(toml::Value::as_str).unwrap_or_default();
        Ok(Box::new(PlantedFault(fault.to_owned())))
    },
};

struct PlantedFault(String);

impl Spec for PlantedFault {
    fn open(&self, job: &ArmJob<'_>) -> Result<Box<dyn Arm>, Unfit> {
        if self.0 == "absent" {
            return Err(Unfit::because("it is not installed"));
        }
        let (len, fault) = (job.bytes as usize, self.0.clone());
        Ok(Box::new(CopyPiece { len, fault, from: vec![], to: vec![], taken: 0 }))
    }
}

struct CopyPiece {
    len: usize,
    fault: String,
    from: Vec<u8>,
    to: Vec<u8>,
    taken: usize,
}

impl Arm for CopyPiece {
    fn promises(&self) -> Option<Guarantees> {
        Some(if self.fault == "shares" { Guarantees::SHARED } else { Guarantees::COPIED })
    }

    fn warm_up(&mut self) -> Result<(), Unfit> {
        (self.from, self.to) = (vec![7; self.len], vec![1; self.len]);
        Ok(())
    }

    fn sample(&mut self, repeats: u32) -> Result<Sample, SampleFailure> {
        self.taken += 1;
        let mut child = None;
        match self.fault.as_str() {
            "cold" if self.taken.is_multiple_of(4) => self.to = vec![0; self.len],
            "forks" | "spawns" if self.taken.is_multiple_of(4) => {
                child = Some(waiting(self.fault == "forks"));
            }
            "fails" if self.taken > 6 => return Err(SampleFailure::Unfit(Unfit::because("EIO"))),
            "dies" => {
                eprintln!("out of luck");
                std::process::exit(7);
            }
            _ => {}
        }
        let meter = SampleMeter::start();
        for _ in 0..repeats {
            self.to.copy_from_slice(black_box(&self.from));
            black_box(&mut self.to);
        }
        let sample = meter.stop(self.len as u64 * u64::from(repeats));
        if let Some(mut child) = child {
            drop(child.stdin.take());
            child.wait().map_err(|e| SampleFailure::Unfit(Unfit::because(e.to_string())))?;
        }
        Ok(sample)
    }

    fn check(&mut self) -> Result<(), Unfit> {
        if self.fault == "byte" {
            self.to[self.len / 2] ^= 1;
        }
        if self.to == self.from {
            return Ok(());
        }
        let equal = self.to.iter().zip(&self.from).take_while(|(to, from)| to == from).count();
        Err(Unfit::because(format!("byte {equal} differs")))
    }

    fn alias(&mut self) -> Option<Result<Alias, Unfit>> {
        let shares = ["shares", "breaks"].contains(&self.fault.as_str());
        Some(Ok(if shares { Alias::Shared } else { Alias::Copied }))
    }
}

/// Starts a child that waits for the end of its input. If a user id is set, even the current one, the standard
/// library uses fork(2), which makes all our pages copy-on-write. Otherwise it uses posix_spawn(3), which shares our
/// memory until it executes a program.
fn waiting(forked: bool) -> Child {
    let mut command = Command::new("/bin/cat");
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    if forked {
        command.uid(rustix::process::geteuid().as_raw());
    }
    command.spawn().expect("cat")
}

/// A probe that returns the configured `numbers`, or fails with the configured reason.
static ANSWER: Probe =
    Probe { name: "answer", parse: |with| Ok(Box::new(FixedFinding(with.clone()))) };

struct FixedFinding(toml::Table);

impl ProbeSpec for FixedFinding {
    fn look(&self, _job: &ArmJob<'_>) -> Result<ProbeFinding, Unfit> {
        if let Some(reason) = self.0.get("unfit").and_then(toml::Value::as_str) {
            return Err(Unfit::because(reason));
        }
        let numbers = self.0.get("numbers").and_then(toml::Value::as_array);
        let numbers = numbers.into_iter().flatten().filter_map(toml::Value::as_float).collect();
        Ok(ProbeFinding { numbers, text: "as configured".to_owned() })
    }
}

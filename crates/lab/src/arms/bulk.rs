//! The work `bulk`: transfers a large buffer from this process to another process with a transfer mechanism of the
//! channel (parameter `arm`).
//!
//! A is this process; B is a helper that starts before any buffer exists. All arms of one size share both processes and
//! their memory, because with separate memory the large sizes would not fit. A sample lasts from A's first call until B
//! has all bytes. The CPU time of both processes counts; B's is also reported separately.

mod alone;
mod vmsplice_memcpy;
mod with;

use std::fs;
use thalweg_core::Unfit;

use thalweg_measure::arms::{
    bulk::{BulkArm, PairJob, pair_of},
    content::ByteContent,
};

use super::{Arm, ArmJob, ArmKind, Spec};
use alone::LocalCopy;
use with::{BulkMethod, BulkParameters};

/// Bulk transfers between two processes, and copies within one process for comparison.
pub(super) static BULK: ArmKind = ArmKind { name: "bulk", parse };

fn parse(with: &toml::Table) -> Result<Box<dyn Spec>, Unfit> {
    let with = BulkParameters::read(with)?;
    with.way()?;
    Ok(Box::new(with))
}

/// Opens the arm. Uses the parsed parameters in `self`, not those of the job.
impl Spec for BulkParameters {
    fn open(&self, job: &ArmJob<'_>) -> Result<Box<dyn Arm>, Unfit> {
        let job = &pair_job(job)?;
        Ok(match self.way()? {
            BulkMethod::Arm(arm) => Box::new(BulkArm::join(job, self.terms(), Some(arm))?),
            BulkMethod::Auto => Box::new(BulkArm::join(job, self.terms(), None)?),
            BulkMethod::Copy(copier) => Box::new(LocalCopy::new(job, self, copier)?),
        })
    }
}

fn pair_job<'j>(job: &ArmJob<'j>) -> Result<PairJob<'j>, Unfit> {
    let bytes = usize::try_from(job.bytes).ok().filter(|bytes| *bytes > 0 && *bytes < 1 << 40);
    let bytes = bytes.ok_or_else(|| {
        Unfit::because(format!("bulk {}: this variant cannot move {} bytes", job.arm, job.bytes))
    })?;
    Ok(PairJob { program: job.program, scratch: job.scratch, bytes })
}

/// Returns the memory in bytes that both processes use after a transfer, in addition to the data buffers.
pub(super) fn extra_memory(job: &ArmJob<'_>) -> Result<u64, Unfit> {
    let between = pair_job(job)?;
    let pair = pair_of(&between)?;
    // The first call allocates the pattern, which must not count as memory of the transfer.
    ByteContent::Pattern.fill(0, &mut [0]);
    let of_both = || -> Result<u64, Unfit> {
        Ok(proportional(std::process::id())? + proportional(pair.borrow().far.id())?)
    };
    let before = of_both()?;
    let mut piece = BULK.open(job)?;
    piece.warm_up()?;
    piece.sample(1)?;
    Ok(of_both()?.saturating_sub(before).saturating_sub(2 * between.bytes as u64))
}

/// Returns the proportional set size of a process, in bytes (proc_pid_smaps(5)).
fn proportional(process: u32) -> Result<u64, Unfit> {
    let path = format!("/proc/{process}/smaps_rollup");
    let text = fs::read_to_string(&path).map_err(|e| Unfit::because(format!("{path}: {e}")))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| Unfit::because(format!("{path} has no line `Pss:`")))
}

//! A copy kernel in this process, with a fixed size or random sizes. Parameters select the use of the copy, the
//! location of its memory, and the number of threads; docs/reference/kernels.md lists them.

mod buffers;
mod fleet;
mod operation;
mod ring;
mod size_mix;
mod stretch;
mod threads;
mod working_set;

use serde::Deserialize;
use thalweg_core::{Guarantees, Unfit};

use super::{Arm, ArmJob, ArmKind, Spec, parameters};
use operation::{CopyUsage, Operation};
use size_mix::{Draw, DrawOrder, SizeMix};
use stretch::CopyStretch;
use thalweg_measure::{
    sample::{Sample, SampleMeter},
    schedule::SampleFailure,
};
use threads::Threads;
use working_set::WorkingSet;

pub use fleet::Distribution;
pub(super) use operation::copier;

/// Copies in memory with the kernels of `thalweg-kernels`.
pub static MEMORY: ArmKind = ArmKind { name: "memory", parse };

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct MemoryParameters {
    /// A name from the tables of copy, fill, checksum or hash kernels.
    kernel: Option<String>,
    #[serde(default, rename = "use")]
    usage: CopyUsage,
    /// The memory over which the copies cycle.
    #[serde(default)]
    residency: WorkingSet,
    #[serde(default)]
    sink: SinkPosition,
    /// Offset of the sink in bytes from its normal position.
    #[serde(default)]
    offset: usize,
    /// The distribution from which sizes are drawn. One operation is then a batch of copies.
    sizes: Option<String>,
    /// The order of the drawn sizes.
    order: Option<DrawOrder>,
    /// The prefetch distance of `stream` in bytes.
    prefetch: Option<usize>,
    /// Number of threads that work at the same time, each on its own memory.
    #[serde(default = "one")]
    threads: usize,
}

fn one() -> usize {
    1
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SinkPosition {
    /// At the start of a cache line, at another offset within a 4 KiB page than the source.
    #[default]
    Line,
    /// At the same offset within a 4 KiB page as the source. The CPU compares only these address bits first, so a load
    /// can seem to depend on an earlier store.
    #[serde(rename = "4k-alias")]
    Alias,
    /// Both sink and source end at the start of an inaccessible page.
    PageEdge,
    /// In pages that were never touched, so that the first write to each page faults.
    Fresh,
}

/// Maximum offset of a sink; a larger one would be in the next cache line.
const MOST_OFFSET: usize = 63;
const MOST_THREADS: usize = 64;

fn parse(with: &toml::Table) -> Result<Box<dyn Spec>, Unfit> {
    let with: MemoryParameters = parameters("memory", with)?;
    with.check().map_err(|reason| Unfit::because(format!("memory: {reason}")))?;
    Ok(Box::new(with))
}

impl Spec for MemoryParameters {
    fn open(&self, job: &ArmJob<'_>) -> Result<Box<dyn Arm>, Unfit> {
        let refuse = |reason: String| Unfit::because(format!("memory {}: {reason}", job.arm));
        let bytes = usize::try_from(job.bytes).ok().filter(|bytes| *bytes > 0 && *bytes < 1 << 40);
        let bytes = bytes.ok_or_else(|| {
            refuse(format!(
                "cannot copy {} bytes; the size must be at least 1 byte and less than 1 TiB",
                job.bytes
            ))
        })?;
        self.arm(bytes).map_err(refuse)
    }
}

impl MemoryParameters {
    fn arm(&self, bytes: usize) -> Result<Box<dyn Arm>, String> {
        let working_set = self.residency.bytes()?;
        if self.usage == CopyUsage::Ring {
            let kernel = copier(self.kernel.as_deref().unwrap_or_default())?;
            return Ok(self.in_threads(|| ring::CopyRing::new(kernel, bytes, working_set)));
        }
        let mut operation = Operation::of(self.usage, self.kernel.as_deref())?;
        if let Some(bytes) = self.prefetch {
            operation = operation.with_prefetch(bytes)?;
        }
        let Some(name) = &self.sizes else {
            let (sink, offset) = (self.sink, self.offset);
            return Ok(
                self.in_threads(|| CopyStretch::new(operation, bytes, working_set, sink, offset))
            );
        };
        let draw = Draw {
            sizes: Distribution::named(name)?,
            order: self.order.unwrap_or_default(),
            kind: self.sink,
            fresh_lines: self.residency == WorkingSet::Dram,
        };
        let mix = SizeMix::new(operation, bytes, working_set, draw)?;
        Ok(self.in_threads(|| mix.clone()))
    }

    /// Returns an error for parameters that cannot be combined. Does not check whether the kernel exists, because
    /// that depends on the CPU.
    fn check(&self) -> Result<(), String> {
        if self.offset > MOST_OFFSET {
            return Err(format!("offset = {}: at most {MOST_OFFSET}", self.offset));
        }
        if !(1..=MOST_THREADS).contains(&self.threads) {
            return Err(format!("threads = {}: must be 1 to {MOST_THREADS}", self.threads));
        }
        let edge_or_fresh = matches!(self.sink, SinkPosition::PageEdge | SinkPosition::Fresh);
        if self.offset > 0 && edge_or_fresh {
            return Err("offset is allowed only with the sinks line and 4k-alias".to_owned());
        }
        if self.usage == CopyUsage::Ring
            && (self.sink != SinkPosition::Line || self.sizes.is_some())
        {
            return Err("use = \"ring\" requires sink = \"line\" and no `sizes`".to_owned());
        }
        if self.usage == CopyUsage::Ring && self.prefetch.is_some() {
            return Err("use = \"ring\" cannot be combined with `prefetch`".to_owned());
        }
        self.residency.is_known()?;
        let Some(sizes) = &self.sizes else {
            return match self.order {
                Some(_) => Err("`order` requires `sizes` with a distribution".to_owned()),
                None if edge_or_fresh && self.residency != WorkingSet::Hot => {
                    Err("residency is allowed only with the sinks line and 4k-alias".to_owned())
                }
                None => Ok(()),
            };
        };
        Distribution::named(sizes)?;
        if self.residency == WorkingSet::Hot {
            return Err("`sizes` requires a residency other than hot".to_owned());
        }
        if self.offset > 0 || matches!(self.sink, SinkPosition::Fresh | SinkPosition::Alias) {
            return Err("`sizes` requires offset = 0 and sink = line or page-edge".to_owned());
        }
        Ok(())
    }

    fn in_threads<C: RepeatedCopy + Send + 'static>(&self, make: impl Fn() -> C) -> Box<dyn Arm> {
        Box::new(Threads::of((0..self.threads).map(|_| make()).collect()))
    }
}

/// An operation on a set of buffers that can be repeated.
trait RepeatedCopy {
    /// Allocates and touches all memory.
    fn allocate(&mut self) -> Result<(), String>;

    /// Performs this number of copies. The result depends on the bytes read, so the compiler cannot remove the reads.
    fn copy(&mut self, times: u32) -> u64;

    /// Returns the number of copies after which `renew` is needed.
    fn at_a_stretch(&self) -> u32 {
        u32::MAX
    }

    /// Restores the initial state; not timed.
    fn renew(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// Overwrites some sinks, copies into them, and verifies all bytes of these sinks.
    fn verify(&mut self) -> Result<(), String>;

    fn bytes(&self) -> usize;

    /// Returns `true` if page faults are part of the cost.
    fn is_fresh(&self) -> bool {
        false
    }
}

impl<C: RepeatedCopy + Send> Arm for Threads<C> {
    fn promises(&self) -> Option<Guarantees> {
        Some(Guarantees::COPIED)
    }

    fn is_fresh(&self) -> bool {
        RepeatedCopy::is_fresh(self)
    }

    fn warm_up(&mut self) -> Result<(), Unfit> {
        self.allocate().map_err(Unfit::because)?;
        std::hint::black_box(self.copy(1));
        self.all_ran().map_err(Unfit::because)
    }

    fn sample(&mut self, repeats: u32) -> Result<Sample, SampleFailure> {
        Sample::of_batches(repeats, self.at_a_stretch(), |now| {
            self.renew()?;
            let meter = SampleMeter::start();
            std::hint::black_box(self.copy(now));
            let sample = meter.stop(self.bytes() as u64 * u64::from(now));
            self.all_ran()?;
            Ok(sample)
        })
    }

    fn check(&mut self) -> Result<(), Unfit> {
        self.verify().map_err(Unfit::because)
    }
}

#[cfg(test)]
mod tests;

//! A copy kernel in this process, and what is done with the copy: nothing, a checksum, or a packet
//! ring's header. The buffers are warm; how much memory they cycle over is the arm's.

mod ring;
mod span;
mod stretch;

use serde::Deserialize;
use thalweg_core::{Guarantees, Unfit};
use thalweg_kernels::{KERNELS, Ready, by_name};

use super::{Job, Piece, Work, parameters};
use crate::{
    rounds::Failure,
    sample::{Meter, Sample},
};
use span::Span;
pub(super) use span::room_for;

/// Copies in memory by the kernels of `thalweg-kernels`.
pub struct Memory;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Parameters {
    /// A row of the table of kernels.
    kernel: String,
    /// What is done with the copy.
    #[serde(default, rename = "use")]
    usage: Usage,
    /// How much memory the copies cycle over.
    #[serde(default)]
    residency: Span,
    /// Bytes that the sink lies past a cache line's beginning.
    #[serde(default)]
    offset: usize,
}

/// What is done with the copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Usage {
    /// Nothing: what a micro-benchmark does.
    #[default]
    Copy,
    /// Its CRC32C is taken at once.
    CopyThenChecksum,
    /// It is a packet: a header goes before it, and both are looked at some packets later.
    Ring,
}

/// As many bytes as a sink may lie past its line; more would be another line's.
const MOST_OFFSET: usize = 63;

impl Work for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn summary(&self) -> &'static str {
        "a copy kernel in this process, and what is done with the copy"
    }

    fn open(&self, job: &Job<'_>) -> Result<Box<dyn Piece>, Unfit> {
        let refuse = |reason: String| Unfit::because(format!("memory {}: {reason}", job.arm));
        let with: Parameters = parameters("memory", job.with)?;
        let kernel = ready(&with.kernel).map_err(refuse)?;
        if with.offset > MOST_OFFSET {
            return Err(refuse(format!("offset = {}: at most {MOST_OFFSET}", with.offset)));
        }
        let bytes = usize::try_from(job.bytes).ok().filter(|bytes| *bytes > 0 && *bytes < 1 << 40);
        let bytes = bytes.ok_or_else(|| refuse(format!("it cannot copy {} bytes", job.bytes)))?;
        let span = with.residency.bytes().map_err(refuse)?;
        let stretch = || stretch::Stretch::new(kernel, bytes, span, with.offset);
        Ok(match with.usage {
            Usage::Copy => Box::new(stretch()),
            Usage::CopyThenChecksum => Box::new(stretch().with_checksum()),
            Usage::Ring => Box::new(ring::Ring::new(kernel, bytes, span)),
        })
    }
}

/// The kernel of this name, if this processor can run it.
fn ready(name: &str) -> Result<Ready, String> {
    let kernel = by_name(name).ok_or_else(|| {
        let all: Vec<&str> = KERNELS.iter().map(|kernel| kernel.name).collect();
        format!("there is no kernel {name:?} on this architecture; there is {}", all.join(", "))
    })?;
    kernel.ready().ok_or_else(|| format!("this processor cannot run the kernel {name}"))
}

/// Memory that cycles over buffers and can do one copy after another.
trait Copies {
    /// Allocates and touches everything.
    fn allocate(&mut self) -> Result<(), String>;

    /// So many copies; answers something that depends on the bytes that were looked at.
    fn copy(&mut self, times: u32) -> u64;

    /// Copies with every sink spoiled before, and looks at all bytes of some sinks.
    fn verify(&mut self) -> Result<(), String>;

    /// Bytes of one copy.
    fn bytes(&self) -> usize;
}

impl<C: Copies> Piece for C {
    fn promises(&self) -> Option<Guarantees> {
        Some(Guarantees::COPIED)
    }

    fn warm_up(&mut self) -> Result<(), Unfit> {
        self.allocate().map_err(Unfit::because)?;
        std::hint::black_box(self.copy(1));
        Ok(())
    }

    fn sample(&mut self, repeats: u32) -> Result<Sample, Failure> {
        let meter = Meter::start();
        std::hint::black_box(self.copy(repeats));
        Ok(meter.stop(self.bytes() as u64 * u64::from(repeats)))
    }

    fn check(&mut self) -> Result<(), Unfit> {
        self.verify().map_err(Unfit::because)
    }
}

/// Bytes that say where they belong.
fn pattern(len: usize) -> Vec<u8> {
    let mut word = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

#[cfg(test)]
mod tests;

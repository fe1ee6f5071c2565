//! Probes of vmsplice: the bytes that one call takes (`vmsplice-limit`), and whether pages are shared or copied in
//! each direction (`vmsplice-directions`). Linux kernels of 2026 and later may copy in both directions.

use serde::Deserialize;
use thalweg_core::{Unfit, quantity::Size};
use thalweg_sys::{
    Errno, io,
    map::Map,
    pipe::{Pipe, SpliceMode, vmsplice, vmsplice_out},
};

use crate::arms::{ArmJob, Probe, ProbeFinding, ProbeSpec, known, parameters};

pub(in crate::arms) static LIMIT: Probe = Probe { name: "vmsplice-limit", parse: limit };

pub(in crate::arms) static DIRECTIONS: Probe =
    Probe { name: "vmsplice-directions", parse: directions };

struct Directions;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitWith {
    #[serde(default = "offered")]
    bytes: Size,
    #[serde(default = "usual")]
    pipes: Vec<Size>,
}

fn offered() -> Size {
    Size(16 << 20)
}

fn usual() -> Vec<Size> {
    vec![Size(0), Size(1 << 20)]
}

fn limit(with: &toml::Table) -> Result<Box<dyn ProbeSpec>, Unfit> {
    let with: LimitWith = parameters(LIMIT.name, with)?;
    if !(1..=1 << 30).contains(&with.bytes.0) || with.pipes.is_empty() {
        return Err(Unfit::because(
            "probe vmsplice-limit: bytes must be from 1 byte up to 1 GiB; pipes must be a list of sizes",
        ));
    }
    Ok(Box::new(with))
}

impl ProbeSpec for LimitWith {
    fn look(&self, _job: &ArmJob<'_>) -> Result<ProbeFinding, Unfit> {
        let Self { bytes: Size(bytes), pipes } = self;
        // Whole pages, because a slot of the pipe cannot contain parts of two pages.
        let memory = Map::anonymous(*bytes as usize, false);
        let mut memory = memory
            .map_err(|e| Unfit::because(format!("cannot map the memory for vmsplice: {e}")))?;
        let memory = memory.bytes_mut().unwrap_or_default();
        memory.fill(1);
        let (mut numbers, mut lines) = (Vec::new(), Vec::new());
        for Size(size) in pipes {
            let failed = |e: Errno| Unfit::because(format!("vmsplice, a pipe of {size}: {e}"));
            let pipe = Pipe::new(usize::try_from(*size).unwrap_or(usize::MAX)).map_err(failed)?;
            let taken = vmsplice(&pipe.writer, memory, SpliceMode::NonBlock).map_err(failed)?;
            numbers.push(taken as f64);
            lines.push(format!("{taken} bytes with a pipe of {}", pipe.capacity()));
        }
        let text = format!("of {bytes} bytes offered, one call accepts: {}", lines.join("; "));
        Ok(ProbeFinding { numbers, text })
    }
}

const SOME: usize = 4096;

fn directions(with: &toml::Table) -> Result<Box<dyn ProbeSpec>, Unfit> {
    known(with, &[])?;
    Ok(Box::new(Directions))
}

impl ProbeSpec for Directions {
    fn look(&self, _job: &ArmJob<'_>) -> Result<ProbeFinding, Unfit> {
        let failed = |step: &'static str| {
            move |e: Errno| Unfit::because(format!("probe vmsplice-directions: {step}: {e}"))
        };
        let into = read_after_change().map_err(failed("memory to pipe"))?;
        let out = taken_before_change().map_err(failed("pipe to memory"))?;
        let word = |shared| if shared { "shared" } else { "copied" };
        let text = format!("memory to pipe {}, pipe to memory {}", word(into), word(out));
        Ok(ProbeFinding { numbers: vec![f64::from(into), f64::from(out)], text })
    }
}

/// Writes memory to a pipe, changes the memory, and reads the pipe. Returns `true` if the change shows.
fn read_after_change() -> Result<bool, Errno> {
    let (pipe, mut memory) = (Pipe::new(0)?, vec![1; SOME]);
    given(&pipe, &memory)?;
    memory.fill(2);
    let mut arrived = vec![0; SOME];
    all(|at| io::read(&pipe.reader, &mut arrived[at..]))?;
    Ok(std::hint::black_box(arrived).contains(&2))
}

/// Writes memory to a pipe, takes it with vmsplice into other memory, and changes both in turn. Returns `true` if a
/// change shows on the other side.
fn taken_before_change() -> Result<bool, Errno> {
    let (pipe, mut memory, mut other) = (Pipe::new(0)?, vec![1; SOME], vec![0; SOME]);
    given(&pipe, &memory)?;
    all(|at| vmsplice_out(&pipe.reader, &mut other[at..], SpliceMode::Block))?;
    memory.fill(2);
    let showed = std::hint::black_box(&other).contains(&2);
    other.fill(3);
    Ok(showed || std::hint::black_box(&memory).contains(&3))
}

fn given(pipe: &Pipe, memory: &[u8]) -> Result<(), Errno> {
    all(|at| vmsplice(&pipe.writer, &memory[at..], SpliceMode::Block))
}

/// Repeats the call until a page has been moved.
fn all(mut call: impl FnMut(usize) -> Result<usize, Errno>) -> Result<(), Errno> {
    let mut moved = 0;
    while moved < SOME {
        match call(moved) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => moved += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

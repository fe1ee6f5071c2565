//! The probe `splice-returns`: the return values of splice into and out of a pipe, with a requested length that no
//! pipe can hold. The numbers are the distinct values; the text is their histogram. Parameters: source, pipes
//! (capacities, 0 = the kernel's default), threads (1 or 2).

use serde::Deserialize;
use std::{collections::BTreeMap, fs::File, os::fd::OwnedFd, sync::Arc, thread};
use thalweg_core::{Unfit, quantity::Size};
use thalweg_sys::{
    Errno, fault,
    pipe::{Pipe, SpliceMode, splice},
};

use crate::arms::{ArmJob, Probe, ProbeFinding, ProbeSpec, parameters};
use thalweg_measure::arms::content;

pub(in crate::arms) static SPLICE_RETURNS: Probe = Probe { name: "splice-returns", parse };

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SpliceParameters {
    source: SpliceSource,
    #[serde(default = "usual")]
    pipes: Vec<Size>,
    #[serde(default = "one")]
    threads: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SpliceSource {
    Zero,
    File,
    Memfd,
}

fn usual() -> Vec<Size> {
    vec![Size(0), Size(1 << 20)]
}

fn one() -> u32 {
    1
}

/// The requested length, which exceeds the capacity of any pipe.
const ASKED: usize = 1 << 30;
/// Number of calls for each pipe.
const CALLS: usize = 64;

type Histogram = BTreeMap<usize, usize>;

fn parse(with: &toml::Table) -> Result<Box<dyn ProbeSpec>, Unfit> {
    let with: SpliceParameters = parameters(SPLICE_RETURNS.name, with)?;
    if !(1..=2).contains(&with.threads) || with.pipes.is_empty() {
        return Err(Unfit::because(
            "probe splice-returns: threads must be 1 or 2; pipes must be a list of sizes",
        ));
    }
    Ok(Box::new(with))
}

impl ProbeSpec for SpliceParameters {
    fn look(&self, job: &ArmJob<'_>) -> Result<ProbeFinding, Unfit> {
        let (mut numbers, mut lines) = (Vec::new(), Vec::new());
        for size in &self.pipes {
            let failed = |e: Errno| Unfit::because(format!("pipe of {} bytes: {e}", size.0));
            let pipe = Pipe::new(usize::try_from(size.0).unwrap_or(usize::MAX)).map_err(failed)?;
            let capacity = pipe.capacity();
            let source = self.source.open(job, (capacity * CALLS) as u64)?;
            let (into, out) =
                if self.threads == 1 { by_turns(&source, &pipe) } else { at_once(&source, pipe) }
                    .map_err(|e| Unfit::because(format!("splice with a pipe of {capacity}: {e}")))?;
            numbers.extend(into.keys().chain(out.keys()).copied());
            lines.push(format!("pipe of {capacity}: in {}, out {}", shown(&into), shown(&out)));
        }
        numbers.sort_unstable();
        numbers.dedup();
        let numbers = numbers.into_iter().map(|number| number as f64).collect();
        Ok(ProbeFinding { numbers, text: lines.join("; ") })
    }
}

impl SpliceSource {
    fn open(self, job: &ArmJob<'_>, len: u64) -> Result<Arc<File>, Unfit> {
        let opened = match self {
            Self::Zero => File::open("/dev/zero").map(Arc::new),
            Self::File => content::file(job.scratch, len),
            Self::Memfd => content::memfd(len),
        };
        opened.map_err(|e| Unfit::because(format!("cannot create the source: {e}")))
    }
}

/// One thread: fills the pipe and empties it, in turn.
fn by_turns(source: &Arc<File>, pipe: &Pipe) -> Result<(Histogram, Histogram), Errno> {
    let (mut into, mut out) = (Histogram::new(), Histogram::new());
    let mut inlet = SpliceInlet::new(source);
    let outlet = null()?;
    for _ in 0..CALLS {
        let got = inlet.fill(&pipe.writer)?;
        *into.entry(got).or_default() += 1;
        let mut waiting = got;
        while waiting > 0 {
            let put = splice(&pipe.reader, None, &outlet, None, ASKED, SpliceMode::NonBlock)?;
            *out.entry(put).or_default() += 1;
            // If splice moved 0 bytes although the pipe contains data, this loop would never end.
            if put == 0 {
                return Err(Errno::IO);
            }
            waiting -= put;
        }
    }
    Ok((into, out))
}

/// Two threads, one on each side of the pipe.
fn at_once(source: &Arc<File>, pipe: Pipe) -> Result<(Histogram, Histogram), Errno> {
    let Pipe { reader, writer, .. } = pipe;
    let inherited = fault::inherit();
    let mut inlet = SpliceInlet::new(source);
    let filler = thread::Builder::new().spawn(move || {
        inherited.enter(|| {
            let mut into = Histogram::new();
            for _ in 0..CALLS {
                *into.entry(inlet.fill(&writer)?).or_default() += 1;
            }
            // The writer is closed here, so the reader sees end of file.
            Ok::<_, Errno>(into)
        })
    });
    let filler = filler.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
    let out = empty(&reader);
    // If reading failed, the filling thread must not wait for room forever.
    drop(reader);
    let into = filler.join().map_err(|_| Errno::IO)??;
    Ok((into, out?))
}

fn empty(reader: &OwnedFd) -> Result<Histogram, Errno> {
    let (mut out, outlet) = (Histogram::new(), null()?);
    loop {
        match splice(reader, None, &outlet, None, ASKED, SpliceMode::Block)? {
            0 => return Ok(out),
            put => *out.entry(put).or_default() += 1,
        }
    }
}

/// A source and the position in it.
struct SpliceInlet {
    source: Arc<File>,
    at: Option<u64>,
}

impl SpliceInlet {
    fn new(source: &Arc<File>) -> Self {
        let addressed = source.metadata().is_ok_and(|meta| meta.is_file());
        Self { source: Arc::clone(source), at: addressed.then_some(0) }
    }

    fn fill(&mut self, into: &OwnedFd) -> Result<usize, Errno> {
        let got = splice(&*self.source, self.at, into, None, ASKED, SpliceMode::Block)?;
        self.at = self.at.map(|at| at + got as u64);
        Ok(got)
    }
}

fn null() -> Result<File, Errno> {
    let null = File::options().write(true).open("/dev/null");
    null.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))
}

fn shown(histogram: &Histogram) -> String {
    let each = histogram.iter().map(|(bytes, calls)| format!("{bytes} x{calls}"));
    each.collect::<Vec<_>>().join(" ")
}

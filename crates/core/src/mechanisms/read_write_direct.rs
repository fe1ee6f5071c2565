//! O_DIRECT reads and writes that bypass the page cache, with several in flight through io_uring.
//! If both endpoints support O_DIRECT, the processor copies no byte, and other processes keep their
//! cached data. Data that is in the cache is read from the disk again. Parts that are not aligned
//! go through the cache.

use rustix::fs::OFlags;
use std::{
    os::fd::{BorrowedFd, OwnedFd},
    sync::Arc,
};
use thalweg_sys::{Errno, uring::RingFd};

use crate::{
    Error, Facts, Guarantees, Info, Kind, Knob, Mechanism, Mover, Nature, Pair, Role, Side,
    Transfer, Tuning, Unfit, Unit, advance_by_steps,
    buffers::Amount,
    reopen::reopen,
    uring_pipeline::{self, EndsPipeline, Front, PipelineJob, PipelineStop, UringPipeline},
};

/// Linked O_DIRECT reads and writes.
pub struct ReadWriteDirect;

static INFO: Info = Info {
    name: "read-write-direct",
    summary: "read and write without the page cache, several blocks at once",
    calls: &["io_uring_enter", "IORING_OP_READ", "IORING_OP_WRITE"],
    pairs: &[
        Pair::new(Kind::File, Kind::File, Guarantees::COPIED),
        Pair::new(Kind::File, Kind::Device, Guarantees::COPIED),
        Pair::new(Kind::Device, Kind::File, Guarantees::COPIED),
        Pair::new(Kind::Device, Kind::Device, Guarantees::COPIED),
    ],
    knobs: &[
        Knob {
            name: "buffer",
            summary: "bytes per block (one read and one write)",
            unit: Unit::Bytes,
            values: &[1 << 20, 256 << 10, 4 << 20],
        },
        Knob {
            name: "depth",
            summary: "blocks in progress at once",
            unit: Unit::Count,
            values: &[4, 2, 8],
        },
    ],
    role: Role::OnRequest("--direct, because it bypasses the page cache"),
    nature: Nature::PLAIN,
};

// A multiple of the page size and of every logical block size in use (512 or 4096).
const GRAIN: u64 = 4096;

struct ReadWriteDirectMover<'a> {
    // Dropped before the other fields, so that no request in flight uses them.
    ends: EndsPipeline<'a>,
    // The endpoints reopened with O_DIRECT; `None` for an endpoint that goes through the cache.
    direct_source: Option<Arc<OwnedFd>>,
    direct_sink: Option<Arc<OwnedFd>>,
}

impl Mechanism for ReadWriteDirect {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn fits(&self, facts: &Facts) -> Result<(), Unfit> {
        uring_pipeline::fits(facts)?;
        if !facts.source.addressed || !facts.sink.addressed {
            return Err(Unfit::because("O_DIRECT needs files or devices that can seek"));
        }
        Ok(())
    }

    fn open<'a>(&self, t: Transfer<'a>, tuning: &Tuning) -> Result<Box<dyn Mover + 'a>, Error> {
        let amount = Amount::of(&t);
        let (source, sink) = t.descriptors(&INFO)?;
        let direct_source = reopen(&source, OFlags::RDONLY | OFlags::DIRECT);
        let mut direct_sink = reopen(&sink, OFlags::WRONLY | OFlags::DIRECT).ok();
        if let (Err(errno), None) = (&direct_source, &direct_sink) {
            return Err(INFO.error("open", Side::Either, *errno, 0));
        }
        let direct_source = direct_source.ok();
        if direct_source.is_some() && source.at.map(|at| at % GRAIN) != sink.at.map(|at| at % GRAIN)
        {
            // The offsets differ modulo `GRAIN`, so O_DIRECT is possible on one endpoint only.
            direct_sink = None;
        }
        let lanes = UringPipeline::new(&INFO, tuning, amount, GRAIN)?;
        Ok(Box::new(ReadWriteDirectMover {
            ends: EndsPipeline::new(lanes, source, sink)?,
            direct_source: direct_source.map(Arc::new),
            direct_sink: direct_sink.map(Arc::new),
        }))
    }
}

impl Mover for ReadWriteDirectMover<'_> {
    fn advance(&mut self, budget: u64) -> Result<u64, Error> {
        advance_by_steps(budget, |most| self.step(most))
    }
}

impl<'a> ReadWriteDirectMover<'a> {
    fn step(&mut self, most: u64) -> Result<u64, Error> {
        let (Some(from), Some(to)) = (self.ends.source.at, self.ends.sink.at) else {
            return Err(INFO.error("open", Side::Either, Errno::SPIPE, 0));
        };
        let ragged = if self.direct_source.is_some() { from % GRAIN } else { to % GRAIN };
        let whole = most / GRAIN * GRAIN;
        if ragged > 0 || whole == 0 {
            return self.plain(most.min(GRAIN - ragged));
        }
        match self.direct(from, to, whole)? {
            Front { moved: 0, stop: Some(PipelineStop::Ragged), .. } => self.plain(most.min(GRAIN)),
            front => Ok(front.moved),
        }
    }

    fn direct(&mut self, from: u64, to: u64, len: u64) -> Result<Front, Error> {
        let fd = |direct: &Option<Arc<OwnedFd>>, plain: BorrowedFd<'a>| -> RingFd<'a> {
            direct.clone().map_or_else(|| plain.into(), Into::into)
        };
        let job = PipelineJob {
            source: (fd(&self.direct_source, self.ends.source.fd), from),
            sink: (fd(&self.direct_sink, self.ends.sink.fd), Some(to)),
            len,
        };
        self.ends.run(&job)
    }

    /// Makes one read and one write through the cache, up to a multiple of the grain at most.
    fn plain(&mut self, most: u64) -> Result<u64, Error> {
        let mut buffer = [0; GRAIN as usize];
        // Both endpoints are addressed by offset. Bytes that were read here and not written are
        // read again later.
        let mut source = self.ends.source;
        let got = source.read(&mut buffer[..most as usize]);
        let got = got.map_err(|e| INFO.error("pread", Side::Source, e, 0))?;
        if got == 0 {
            return Ok(0);
        }
        let put = self.ends.sink.write(&buffer[..got]);
        let put = put.map_err(|e| INFO.error("pwrite", Side::Sink, e, 0))? as u64;
        if put == 0 {
            return Err(INFO.error("pwrite", Side::Sink, Errno::INVAL, 0));
        }
        self.ends.source.forward(put);
        Ok(put)
    }
}

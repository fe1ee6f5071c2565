//! splice through a pipe: the kernel moves pages by reference if it can, and copies otherwise. Each filling of the pipe
//! takes two calls, or one if an endpoint is itself a pipe. Later writes to a file change its pages that are still in a
//! pipe or a socket.

use thalweg_sys::pipe::{self, SpliceMode};

use crate::{
    End, Error, Facts, Guarantees, Info, Kind, Knob, Mechanism, Mover, Nature, Pair, Role, Side,
    Transfer, Tuning, Unfit, Unit, advance_by_steps,
    pipe_buffer::{PipeBuffer, chunk},
};

/// Splices with one thread and one pipe.
pub struct Splice;

static INFO: Info = Info {
    name: "splice",
    summary: "move pages through a kernel pipe with one thread",
    calls: &["splice"],
    pairs: &[
        Pair::new(Kind::File, Kind::File, Guarantees::COPIED),
        // Page-cache pages stay shared with the file, so the reader sees later writes to it.
        Pair::new(Kind::File, Kind::Pipe, Guarantees::SHARED),
        Pair::new(Kind::File, Kind::Socket, Guarantees::SHARED),
        Pair::new(Kind::File, Kind::Null, Guarantees::COPIED),
        Pair::new(Kind::Pipe, Kind::File, Guarantees::COPIED),
        // The kernel moves the buffers from one pipe to the other. Their pages are shared only if the writer of the
        // first pipe shared them (splice, vmsplice). Every reader of that pipe would then see later changes.
        Pair::new(Kind::Pipe, Kind::Pipe, Guarantees::COPIED).likely(),
        Pair::new(Kind::Pipe, Kind::Socket, Guarantees::COPIED),
        Pair::new(Kind::Pipe, Kind::Null, Guarantees::COPIED),
        Pair::new(Kind::Socket, Kind::File, Guarantees::COPIED),
        Pair::new(Kind::Socket, Kind::Pipe, Guarantees::COPIED),
        Pair::new(Kind::Socket, Kind::Null, Guarantees::COPIED),
        Pair::new(Kind::Device, Kind::File, Guarantees::COPIED),
        // Pages stay shared with the page cache of the block device.
        Pair::new(Kind::Device, Kind::Pipe, Guarantees::SHARED),
        Pair::new(Kind::Device, Kind::Null, Guarantees::COPIED),
    ],
    knobs: &[Knob {
        name: "pipe",
        summary: "requested capacity of the pipe; each call moves at most the granted capacity",
        unit: Unit::Bytes,
        // With a larger default, copies that ran at the same time were several times slower
        // (docs/benchmarks/planner.md).
        values: &[512 << 10, 64 << 10, 256 << 10, 1 << 20],
    }],
    role: Role::Mover,
    nature: Nature::PLAIN,
};

struct SpliceMover<'a> {
    source: End<'a>,
    sink: End<'a>,
    // `None` if an endpoint is a pipe; one splice then connects both.
    through: Option<PipeBuffer>,
}

impl Mechanism for Splice {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn fits(&self, facts: &Facts) -> Result<(), Unfit> {
        if facts.sink.append {
            return Err(Unfit::because("splice fails with EINVAL on O_APPEND destinations"));
        }
        Ok(())
    }

    fn open<'a>(&self, t: Transfer<'a>, tuning: &Tuning) -> Result<Box<dyn Mover + 'a>, Error> {
        let (source, sink) = t.descriptors(&INFO)?;
        let direct = source.kind == Kind::Pipe || sink.kind == Kind::Pipe;
        let wished = INFO.bytes(tuning, "pipe");
        let through = if direct { None } else { Some(PipeBuffer::new(&INFO, wished)?) };
        Ok(Box::new(SpliceMover { source, sink, through }))
    }
}

impl Mover for SpliceMover<'_> {
    fn advance(&mut self, budget: u64) -> Result<u64, Error> {
        advance_by_steps(budget, |most| self.step(most))
    }

    fn in_flight(&self) -> u64 {
        self.through.as_ref().map_or(0, PipeBuffer::waiting)
    }

    fn drain(&mut self) -> Result<u64, Error> {
        self.through.as_mut().map_or(Ok(0), |through| through.drain(&INFO, &mut self.sink))
    }
}

impl SpliceMover<'_> {
    fn step(&mut self, most: u64) -> Result<u64, Error> {
        let Some(through) = &mut self.through else {
            let (from, to) = (self.source, self.sink);
            let moved =
                pipe::splice(from.fd, from.at, to.fd, to.at, chunk(most), SpliceMode::Block);
            let moved = moved.map_err(|e| INFO.error("splice", Side::Either, e, 0))? as u64;
            self.source.forward(moved);
            self.sink.forward(moved);
            return Ok(moved);
        };
        if through.waiting() == 0 {
            let got = through.fill(&mut self.source, most);
            got.map_err(|e| INFO.error("splice", Side::Source, e, 0))?;
        }
        if through.waiting() == 0 {
            return Ok(0);
        }
        through.empty(&mut self.sink).map_err(|e| INFO.error("splice", Side::Sink, e, 0))
    }
}

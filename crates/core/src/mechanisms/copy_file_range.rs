//! `copy_file_range`: the kernel copies between two files, one call per chunk, without user memory.
//! Network file systems copy on the server, and some local file systems clone. The mechanism works
//! only within one file system.

use thalweg_sys::copy;

use crate::{
    Blocks, End, Error, Facts, Guarantees, Info, Kind, Knob, Mechanism, Mover, Nature, Pair, Role,
    Side, Transfer, Tuning, Unfit, Unit, advance_by_steps, pipe_buffer::chunk,
};

/// `copy_file_range` with explicit offsets.
pub struct CopyFileRange;

static INFO: Info = Info {
    name: "copy-file-range",
    summary: "let the kernel or the file server copy from file to file",
    calls: &["copy_file_range"],
    pairs: &[Pair::new(Kind::File, Kind::File, Guarantees::COPIED).likely()],
    knobs: &[Knob {
        name: "chunk",
        summary: "maximum bytes per call",
        unit: Unit::Bytes,
        values: &[64 << 20, 1 << 20, 16 << 20, 256 << 20, 1 << 30],
    }],
    role: Role::Mover,
    nature: Nature { blocks: Blocks::MayShare, ..Nature::PLAIN },
};

struct CopyFileRangeMover<'a> {
    source: End<'a>,
    sink: End<'a>,
    chunk: u64,
}

impl Mechanism for CopyFileRange {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn fits(&self, facts: &Facts) -> Result<(), Unfit> {
        if facts.sink.append {
            return Err(Unfit::because(
                "copy_file_range fails with EBADF on O_APPEND destinations",
            ));
        }
        Ok(())
    }

    fn saves_work(&self, facts: &Facts) -> bool {
        facts.one_file_system() && facts.remote() && !facts.sink.append
    }

    fn open<'a>(&self, t: Transfer<'a>, tuning: &Tuning) -> Result<Box<dyn Mover + 'a>, Error> {
        let (source, sink) = t.descriptors(&INFO)?;
        Ok(Box::new(CopyFileRangeMover { source, sink, chunk: INFO.bytes(tuning, "chunk") as u64 }))
    }
}

impl Mover for CopyFileRangeMover<'_> {
    fn advance(&mut self, budget: u64) -> Result<u64, Error> {
        advance_by_steps(budget, |most| self.step(most))
    }
}

impl CopyFileRangeMover<'_> {
    fn step(&mut self, most: u64) -> Result<u64, Error> {
        let (from, to) = (self.source, self.sink);
        let len = chunk(most.min(self.chunk));
        let moved = copy::copy_file_range(from.fd, from.at, to.fd, to.at, len);
        let moved = moved.map_err(|e| INFO.error("copy_file_range", Side::Either, e, 0))? as u64;
        self.source.forward(moved);
        self.sink.forward(moved);
        Ok(moved)
    }
}

//! Maps a window of the source and writes from the mapping. This costs one copy, and a page fault
//! for every page or folio that is not mapped yet. Only the kernel reads the mapping. If the source
//! shrinks, the call therefore returns an errno, and no signal is raised. If a page is truncated
//! while it is written, its bytes read as zeros.

use thalweg_sys::{Errno, map::Map};

use crate::{
    End, Error, Guarantees, Info, Kind, Knob, Mechanism, Mover, Nature, Pair, Role, Side, Transfer,
    Tuning, Unit, advance_by_steps, length_guard::length, pipe_buffer::chunk,
};

/// Maps the source with `mmap` and calls `write` on the mapping.
pub struct MmapWrite;

static INFO: Info = Info {
    name: "mmap-write",
    summary: "map a part of the source and write from the mapping",
    calls: &["mmap", "write"],
    // write copies out of the mapping, so nothing stays shared.
    pairs: &[
        Pair::new(Kind::File, Kind::File, Guarantees::COPIED),
        Pair::new(Kind::File, Kind::Pipe, Guarantees::COPIED),
        Pair::new(Kind::File, Kind::Socket, Guarantees::COPIED),
        Pair::new(Kind::File, Kind::Null, Guarantees::COPIED),
    ],
    knobs: &[Knob {
        name: "window",
        summary: "bytes mapped at a time",
        unit: Unit::Bytes,
        values: &[16 << 20, 1 << 20, 4 << 20, 64 << 20, 256 << 20],
    }],
    role: Role::Mover,
    nature: Nature::PLAIN,
};

struct MmapWriteMover<'a> {
    source: End<'a>,
    sink: End<'a>,
    wished: usize,
    window: Option<Map>,
    // Bytes of the window that have been written.
    done: usize,
}

impl Mechanism for MmapWrite {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn open<'a>(&self, t: Transfer<'a>, tuning: &Tuning) -> Result<Box<dyn Mover + 'a>, Error> {
        let (source, sink) = t.descriptors(&INFO)?;
        let wished = INFO.bytes(tuning, "window");
        let mut run = MmapWriteMover { source, sink, wished, window: None, done: 0 };
        run.slide()?;
        Ok(Box::new(run))
    }
}

impl Mover for MmapWriteMover<'_> {
    fn advance(&mut self, budget: u64) -> Result<u64, Error> {
        advance_by_steps(budget, |most| self.step(chunk(most)))
    }
}

impl MmapWriteMover<'_> {
    /// Maps the next window, but never past the end of the source: the last page contains zeros
    /// after that end.
    fn slide(&mut self) -> Result<(), Error> {
        self.window = None;
        self.done = 0;
        let mmap = |errno| INFO.error("mmap", Side::Source, errno, 0);
        let at = self.source.at.ok_or(mmap(Errno::SPIPE))?;
        let left = length(&self.source).map_err(|e| INFO.error("fstat", Side::Source, e, 0))?;
        let len = self.wished.min(chunk(left.saturating_sub(at)));
        if len > 0 {
            let map = Map::of_file(self.source.fd, at, len).map_err(mmap)?;
            // Advice only: a failure costs time, but no bytes.
            let _ = map.advise_sequential();
            self.window = Some(map);
        }
        Ok(())
    }

    fn step(&mut self, most: usize) -> Result<u64, Error> {
        if self.window.as_ref().is_none_or(|map| self.done == map.len()) {
            self.slide()?;
        }
        let Some(map) = &self.window else { return Ok(0) };
        let end = map.len().min(self.done + most);
        let put = map.write_to(self.done..end, self.sink.fd, self.sink.at);
        // EFAULT: the page no longer exists, or the disk could not provide it. The source failed.
        let side = |errno| if errno == Errno::FAULT { Side::Source } else { Side::Sink };
        let failed = |errno| INFO.error(self.sink.write_call(), side(errno), errno, 0);
        let put = put.map_err(failed)?;
        if put == 0 {
            return Err(failed(Errno::INVAL));
        }
        self.done += put;
        self.source.forward(put as u64);
        self.sink.forward(put as u64);
        Ok(put as u64)
    }
}

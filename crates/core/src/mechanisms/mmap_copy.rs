//! Maps both files and copies between the mappings. System calls are made only for a new window,
//! but every page or folio takes a page fault on each side. Space is allocated first, so that a
//! full disk is reported as an errno. Allocated space that was not filled is truncated.

use thalweg_sys::{
    Errno, io,
    map::{Access, Map, copy_between},
};

use crate::{
    End, Error, Guarantees, Info, Kind, Knob, Mechanism, Mover, Nature, Pair, Role, Side, Transfer,
    Tuning, Unit, advance_by_steps,
    length_guard::{LengthGuard, length},
    pipe_buffer::chunk,
};

/// Maps both files with `mmap` and copies in user space.
pub struct MmapCopy;

static INFO: Info = Info {
    name: "mmap-copy",
    summary: "map a part of both files and copy between the mappings",
    calls: &["mmap", "fallocate"],
    pairs: &[Pair::new(Kind::File, Kind::File, Guarantees::COPIED)],
    knobs: &[Knob {
        name: "window",
        summary: "bytes mapped at a time on each side",
        unit: Unit::Bytes,
        values: &[16 << 20, 1 << 20, 4 << 20, 64 << 20, 256 << 20],
    }],
    role: Role::Mover,
    nature: Nature::PLAIN,
};

struct MmapCopyMover<'a> {
    source: End<'a>,
    sink: End<'a>,
    growth: LengthGuard,
    wished: usize,
    window: Option<Window>,
}

struct Window {
    from: Map,
    to: Map,
    // Bytes of the window that have been copied.
    done: usize,
}

impl Mechanism for MmapCopy {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn open<'a>(&self, t: Transfer<'a>, tuning: &Tuning) -> Result<Box<dyn Mover + 'a>, Error> {
        let (source, sink) = t.descriptors(&INFO)?;
        let growth = LengthGuard::of(&sink).map_err(|e| INFO.error("fstat", Side::Sink, e, 0))?;
        let wished = INFO.bytes(tuning, "window");
        let mut run = MmapCopyMover { source, sink, growth, wished, window: None };
        run.slide()?;
        Ok(Box::new(run))
    }
}

impl Mover for MmapCopyMover<'_> {
    fn advance(&mut self, budget: u64) -> Result<u64, Error> {
        let answer = advance_by_steps(budget, |most| self.step(chunk(most)));
        if answer.is_err() {
            // A failed fallocate may have allocated some space. A page that vanished may have left
            // a hole.
            let settled = self.growth.settle(&self.sink);
            let moved = answer.as_ref().map_or_else(|e| e.moved, |moved| *moved);
            settled.map_err(|e| INFO.error("ftruncate", Side::Sink, e, moved))?;
        }
        answer
    }
}

impl MmapCopyMover<'_> {
    /// Maps the next window, but never past the end of the source: the last page contains zeros
    /// after that end. The window may reach past the end of the sink, because `make_room` extends
    /// the sink before its pages are written.
    fn slide(&mut self) -> Result<(), Error> {
        self.window = None;
        let (Some(from), Some(to)) = (self.source.at, self.sink.at) else {
            return Err(INFO.error("mmap", Side::Either, Errno::SPIPE, 0));
        };
        let left = length(&self.source).map_err(|e| INFO.error("fstat", Side::Source, e, 0))?;
        let len = self.wished.min(chunk(left.saturating_sub(from)));
        if len > 0 {
            let source = Map::of_file(self.source.fd, from, len, Access::Read);
            let sink = Map::of_file(self.sink.fd, to, len, Access::Write);
            self.window = Some(Window {
                from: source.map_err(|e| INFO.error("mmap", Side::Source, e, 0))?,
                to: sink.map_err(|e| INFO.error("mmap", Side::Sink, e, 0))?,
                done: 0,
            });
        }
        Ok(())
    }

    fn step(&mut self, most: usize) -> Result<u64, Error> {
        if self.window.as_ref().is_none_or(|window| window.done == window.from.len()) {
            self.slide()?;
        }
        let (Some(window), Some(at)) = (&mut self.window, self.sink.at) else { return Ok(0) };
        let count = most.min(window.from.len() - window.done);
        make_room(&self.sink, at, count as u64)?;
        let range = window.done..window.done + count;
        let answer = copy_between(&window.from, range, &mut window.to, window.done);
        let copied = answer.unwrap_or_else(|stopped| stopped.copied);
        window.done += copied;
        self.source.forward(copied as u64);
        self.sink.forward(copied as u64);
        match answer {
            Ok(copied) => Ok(copied as u64),
            Err(stopped) => Err(INFO.error("mmap", Side::Either, stopped.errno, copied as u64)),
        }
    }
}

/// Allocates disk blocks for the next bytes. If the file system does not support fallocate, only
/// extends the file. A full disk is then noticed later, as a page that cannot be written.
fn make_room(sink: &End<'_>, at: u64, len: u64) -> Result<(), Error> {
    match io::fallocate(sink.fd, at, len) {
        Err(Errno::OPNOTSUPP) => {
            let size = length(sink).map_err(|e| INFO.error("fstat", Side::Sink, e, 0))?;
            let grown = if size < at + len { io::ftruncate(sink.fd, at + len) } else { Ok(()) };
            grown.map_err(|e| INFO.error("ftruncate", Side::Sink, e, 0))
        }
        answer => answer.map_err(|e| INFO.error("fallocate", Side::Sink, e, 0)),
    }
}

//! vmsplice puts pages of memory into a pipe without copying them. Memory of the caller is used
//! directly. A file is first read into private memory, which is never written again. A reader may
//! splice the pages further, so even an empty pipe does not mean that the pages are free.

use thalweg_sys::{
    Errno,
    map::Map,
    pipe::{self, SpliceMode},
};

use crate::{
    End, Error, Guarantees, Info, Kind, Knob, Mechanism, Mover, Nature, Pair, Role, Side, Sink,
    Source, Transfer, Tuning, Unit, advance_by_steps, pipe_buffer::chunk,
};

/// Calls `vmsplice` on memory, after a `read` if the source is a file.
pub struct Vmsplice;

static INFO: Info = Info {
    name: "vmsplice",
    summary: "move pages of memory into a pipe without a copy",
    calls: &["vmsplice", "read"],
    pairs: &[
        // The pipe holds the caller's own pages, so the reader sees later writes to them.
        Pair::new(Kind::Memory, Kind::Pipe, Guarantees::SHARED),
        // read copies the bytes into pages that are never written again.
        Pair::new(Kind::File, Kind::Pipe, Guarantees::COPIED),
    ],
    knobs: &[
        Knob {
            name: "buffer",
            summary: "bytes read from a file at a time, into fresh pages",
            unit: Unit::Bytes,
            values: &[1 << 20, 64 << 10, 256 << 10, 2 << 20],
        },
        Knob {
            name: "huge",
            summary: "1 to request huge pages for these buffers",
            unit: Unit::Count,
            values: &[0, 1],
        },
    ],
    role: Role::Mover,
    nature: Nature::PLAIN,
};

enum VmspliceMover<'a> {
    Memory { bytes: &'a [u8], sink: End<'a> },
    File(VmspliceFile<'a>),
}

struct VmspliceFile<'a> {
    source: End<'a>,
    sink: End<'a>,
    wished: usize,
    huge: bool,
    // The range `[sent..filled]` of `full` was read and is not in the pipe. A page in the pipe may
    // be unmapped, because the kernel keeps it as long as any reader uses it.
    full: Option<Map>,
    filled: usize,
    sent: usize,
}

impl Mechanism for Vmsplice {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn open<'a>(&self, t: Transfer<'a>, tuning: &Tuning) -> Result<Box<dyn Mover + 'a>, Error> {
        let (wished, huge) = (INFO.bytes(tuning, "buffer"), INFO.knob(tuning, "huge") > 0);
        match (t.source, t.sink) {
            (Source::Memory(bytes), Sink::Fd(sink)) => {
                Ok(Box::new(VmspliceMover::Memory { bytes, sink }))
            }
            (Source::Fd(source), Sink::Fd(sink)) => {
                let pages =
                    VmspliceFile { source, sink, wished, huge, full: None, filled: 0, sent: 0 };
                Ok(Box::new(VmspliceMover::File(pages)))
            }
            _ => Err(INFO.error("open", Side::Sink, Errno::INVAL, 0)),
        }
    }
}

impl Mover for VmspliceMover<'_> {
    fn advance(&mut self, budget: u64) -> Result<u64, Error> {
        advance_by_steps(budget, |most| match self {
            Self::Memory { bytes, sink } => {
                let count = bytes.len().min(chunk(most));
                let put = give(sink, &bytes[..count])?;
                *bytes = &bytes[put..];
                Ok(put as u64)
            }
            Self::File(pages) => pages.step(chunk(most)),
        })
    }

    fn knows_the_end(&self) -> bool {
        true
    }

    fn in_flight(&self) -> u64 {
        match self {
            Self::Memory { .. } => 0,
            Self::File(pages) => (pages.filled - pages.sent) as u64,
        }
    }

    fn drain(&mut self) -> Result<u64, Error> {
        let Self::File(pages) = self else { return Ok(0) };
        let Some(full) = &pages.full else { return Ok(0) };
        let rest = full.write_to(pages.sent..pages.filled, pages.sink.fd, None);
        let put = rest.map_err(|e| INFO.error("write", Side::Sink, e, 0))?;
        pages.sent += put;
        Ok(put as u64)
    }
}

impl VmspliceFile<'_> {
    fn step(&mut self, most: usize) -> Result<u64, Error> {
        if self.sent == self.filled {
            (self.sent, self.filled) = (0, 0);
            let len = self.wished.min(most);
            let fresh = Map::anonymous(len, self.huge);
            let fresh = fresh.map_err(|e| INFO.error("mmap", Side::Own, e, 0))?;
            let into = self.full.insert(fresh).bytes_mut().unwrap_or_default();
            let got = self.source.read(into);
            let got = got.map_err(|e| INFO.error(self.source.read_call(), Side::Source, e, 0))?;
            self.filled = got;
        }
        let full = self.full.as_ref().and_then(Map::bytes).unwrap_or_default();
        let end = self.filled.min(self.sent + most);
        let put = give(&self.sink, &full[self.sent..end])?;
        self.sent += put;
        Ok(put as u64)
    }
}

/// Calls vmsplice once. Returns 0 only if `bytes` is empty.
fn give(sink: &End<'_>, bytes: &[u8]) -> Result<usize, Error> {
    if bytes.is_empty() {
        return Ok(0);
    }
    match pipe::vmsplice(sink.fd, bytes, SpliceMode::Block) {
        Ok(0) => Err(INFO.error("vmsplice", Side::Sink, Errno::INVAL, 0)),
        answer => answer.map_err(|e| INFO.error("vmsplice", Side::Sink, e, 0)),
    }
}

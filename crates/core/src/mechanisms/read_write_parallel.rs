//! Plain pread and pwrite on several threads, including the caller's. Each thread moves one buffer's worth of the file
//! at a time, so that one thread reads while another writes. The CPU time is that of plain read and write. The wall
//! time is shorter if a core is free. Writes may happen in any order.

use std::{
    sync::{
        LazyLock, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use thalweg_sys::{Errno, buffer::Buffer, fault};

use crate::{
    End, Error, Facts, Guarantees, Info, Kind, Knob, Mechanism, Mover, Nature, Pair, Role, Side,
    Transfer, Tuning, Unfit, Unit,
    buffers::{Amount, sizes},
    length_guard::LengthGuard,
};

/// `pread` and `pwrite` on several threads.
pub struct ReadWriteParallel;

static INFO: LazyLock<Info> = LazyLock::new(|| Info {
    name: "read-write-parallel",
    summary: "pread and pwrite with several threads",
    calls: &["pread", "pwrite"],
    pairs: const { &[Pair::new(Kind::File, Kind::File, Guarantees::COPIED)] },
    knobs: &*KNOBS,
    role: Role::Mover,
    nature: Nature::PLAIN,
});

static KNOBS: LazyLock<[Knob; 2]> = LazyLock::new(|| {
    [
        Knob { name: "threads", summary: "threads that copy", unit: Unit::Count, values: &[2, 4] },
        Knob {
            name: "buffer",
            summary: "bytes per read and per write, for each thread",
            unit: Unit::Bytes,
            values: sizes(&[256 << 10, 64 << 10, 128 << 10, 1 << 20]),
        },
    ]
});

struct ReadWriteParallelMover<'a> {
    source: End<'a>,
    sink: End<'a>,
    growth: LengthGuard,
    buffers: Vec<Buffer>,
}

impl Mechanism for ReadWriteParallel {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn fits(&self, facts: &Facts) -> Result<(), Unfit> {
        if facts.source.addressed && facts.sink.addressed {
            return Ok(());
        }
        Err(Unfit::because("needs files or devices that can seek"))
    }

    fn open<'a>(&self, t: Transfer<'a>, tuning: &Tuning) -> Result<Box<dyn Mover + 'a>, Error> {
        let amount = Amount::of(&t);
        let (source, sink) = t.descriptors(&INFO)?;
        if source.at.is_none() || sink.at.is_none() {
            return Err(INFO.error("open", Side::Either, Errno::SPIPE, 0));
        }
        let growth = LengthGuard::of(&sink).map_err(|e| INFO.error("fstat", Side::Sink, e, 0))?;
        let least = INFO.least("buffer");
        let size = amount.fits(INFO.bytes(tuning, "buffer"), least);
        let threads = amount.pieces(size, least).min(INFO.knob(tuning, "threads"));
        let buffers = (0..threads).map(|_| Buffer::new(size)).collect();
        Ok(Box::new(ReadWriteParallelMover { source, sink, growth, buffers }))
    }
}

impl Mover for ReadWriteParallelMover<'_> {
    fn advance(&mut self, budget: u64) -> Result<u64, Error> {
        let stretch = SharedRange::new(self.source, self.sink, budget);
        let faults = fault::inherit();
        let (own, others) = self.buffers.split_first_mut().unzip();
        thread::scope(|scope| {
            for buffer in others.into_iter().flatten() {
                let (stretch, faults) = (&stretch, faults.clone());
                let work = move || faults.enter(|| stretch.work(buffer));
                // If no more threads can be created, the existing threads do the work.
                if thread::Builder::new().spawn_scoped(scope, work).is_err() {
                    break;
                }
            }
            if let Some(buffer) = own {
                stretch.work(buffer);
            }
        });
        let (moved, failed) = stretch.end();
        self.source.forward(moved);
        self.sink.forward(moved);
        if moved < budget {
            // When one thread stops at an offset, others may have written beyond it.
            let settled = self.growth.settle(&self.sink);
            settled.map_err(|e| INFO.error("ftruncate", Side::Sink, e, moved))?;
        }
        failed.map_or(Ok(moved), |error| Err(Error { moved, ..error }))
    }

    fn knows_the_end(&self) -> bool {
        true
    }
}

/// The bytes of one step, which the threads divide among themselves.
struct SharedRange<'a> {
    source: End<'a>,
    sink: End<'a>,
    // The next byte that no thread has taken, and the end of the range. `next` only grows; `until` only shrinks.
    next: AtomicU64,
    until: AtomicU64,
    // The first offset that could not be delivered, and the error. The error is `None` if the source ends there.
    first_gap: Mutex<(u64, Option<Error>)>,
}

impl<'a> SharedRange<'a> {
    fn new(source: End<'a>, sink: End<'a>, len: u64) -> Self {
        let (next, until) = (AtomicU64::new(0), AtomicU64::new(len));
        Self { source, sink, next, until, first_gap: Mutex::new((len, None)) }
    }

    /// Takes pieces until none is left. A thread finishes every piece that it takes, so all bytes before the first gap
    /// are delivered.
    fn work(&self, buffer: &mut [u8]) {
        loop {
            let from = self.next.fetch_add(buffer.len() as u64, Ordering::Relaxed);
            let len = self.until.load(Ordering::Relaxed).saturating_sub(from);
            let len = usize::try_from(len).map_or(buffer.len(), |len| len.min(buffer.len()));
            if len == 0 {
                return;
            }
            let (done, failed) = self.piece(from, &mut buffer[..len]);
            if done < len as u64 {
                self.gap(from + done, failed);
            }
        }
    }

    /// Copies one piece. Returns the bytes copied, and the error that stopped it. If the piece is incomplete without an
    /// error, the source ends there.
    fn piece(&self, from: u64, buffer: &mut [u8]) -> (u64, Option<Error>) {
        let at = |end: &End<'a>| end.at(end.at.unwrap_or(0) + from);
        let (mut source, mut sink) = (at(&self.source), at(&self.sink));
        let mut done = 0;
        while done < buffer.len() {
            let got = match source.read(&mut buffer[done..]) {
                Ok(0) => return (done as u64, None),
                Ok(got) => got,
                Err(e) => return (done as u64, Some(INFO.error("pread", Side::Source, e, 0))),
            };
            let end = done + got;
            while done < end {
                match sink.write(&buffer[done..end]) {
                    // Without this check, a sink that accepts nothing and returns no errno would cause an endless loop.
                    Ok(0) => {
                        let error = INFO.error("pwrite", Side::Sink, Errno::INVAL, 0);
                        return (done as u64, Some(error));
                    }
                    Ok(put) => done += put,
                    Err(e) => return (done as u64, Some(INFO.error("pwrite", Side::Sink, e, 0))),
                }
            }
        }
        (done as u64, None)
    }

    fn gap(&self, at: u64, error: Option<Error>) {
        self.until.fetch_min(at, Ordering::Relaxed);
        // A panic in another thread may have poisoned the lock. The plain values in it are still consistent.
        let mut first = self.first_gap.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if at < first.0 {
            *first = (at, error);
        }
    }

    fn end(self) -> (u64, Option<Error>) {
        self.first_gap.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

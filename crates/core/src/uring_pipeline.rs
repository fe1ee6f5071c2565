//! Keeps several reads and writes in flight through io_uring. A job is divided into pieces. Each piece in flight has
//! its own lane: a slot of the ring, with a buffer. Pieces may end in any order. Only the front is reported, which is
//! the offset up to which all bytes are delivered.

use thalweg_sys::{
    Errno,
    uring::{CURRENT, Completion, Op, RingFd, Uring},
};

use crate::{
    End, Error, Facts, Info, Side, Tuning, Unfit, buffers::Amount, length_guard::LengthGuard,
};

/// Two files, the start offset in each, and the length.
pub struct PipelineJob<'a> {
    /// The file to read, and the start offset.
    pub source: (RingFd<'a>, u64),
    /// The sink, and the start offset; `None` for a sink without offsets.
    pub sink: (RingFd<'a>, Option<u64>),
    /// Number of bytes.
    pub len: u64,
}

/// The progress of a job.
pub struct Front {
    /// Bytes in the sink, from the start of the job and without gaps.
    pub moved: u64,
    /// The reason for stopping; `None` if all bytes were moved.
    pub stop: Option<PipelineStop>,
    /// `true` if bytes beyond the front have been written as well.
    pub scattered: bool,
}

/// The reason that a piece could not be finished.
#[derive(Clone, Copy, Debug)]
pub enum PipelineStop {
    /// A read returned 0.
    End,
    /// A call moved fewer bytes than the grain.
    Ragged,
    /// A call failed.
    Failed(&'static str, Side, Errno),
}

/// Returns an error for endpoints that several blocks in progress, or the kernel through io_uring, handle incorrectly.
///
/// On a FUSE mount with `FOPEN_DIRECT_IO`, the kernel does not advance the offset after a short read or write. io_uring
/// then continues at the old offset and repeats bytes. A read at the end of a file is always short. This was observed
/// on Linux 6.18. The affected mounts cannot be detected, so all FUSE mounts and virtiofs are excluded.
pub fn fits(facts: &Facts) -> Result<(), Unfit> {
    if facts.sink.append {
        return Err(Unfit::because(
            "on O_APPEND destinations, several blocks in progress would be appended in any order",
        ));
    }
    for end in [&facts.source, &facts.sink] {
        let name = end.fs.as_ref().map_or("", |fs| fs.name.as_str());
        if name.starts_with("fuse") || name == "virtiofs" {
            return Err(Unfit::because(format!(
                "io_uring repeats bytes after a short read or write on {name}"
            )));
        }
    }
    Ok(())
}

/// A pipeline between two endpoints. It advances their offsets.
pub struct EndsPipeline<'a> {
    // Dropped before the other fields, so that no request in flight uses them. `None` after an error of the ring.
    lanes: Option<UringPipeline<'a>>,
    info: &'static Info,
    pub source: End<'a>,
    pub sink: End<'a>,
    growth: LengthGuard,
}

impl<'a> EndsPipeline<'a> {
    pub fn new(lanes: UringPipeline<'a>, source: End<'a>, sink: End<'a>) -> Result<Self, Error> {
        let info = lanes.info;
        let growth = LengthGuard::of(&sink).map_err(|e| info.error("fstat", Side::Sink, e, 0))?;
        Ok(Self { lanes: Some(lanes), info, source, sink, growth })
    }

    /// Runs a job that begins at the offsets of the endpoints. A failed call is an error; `stop` is then not `Failed`.
    pub fn run(&mut self, job: &PipelineJob<'a>) -> Result<Front, Error> {
        let info = self.info;
        let broken = info.error("io_uring_enter", Side::Own, Errno::BADF, 0);
        let answer = self.lanes.as_mut().ok_or(broken)?.run(job);
        if answer.is_err() {
            self.lanes = None;
        }
        let (moved, scattered) = answer.as_ref().map_or((0, true), |f| (f.moved, f.scattered));
        self.source.forward(moved);
        self.sink.forward(moved);
        if scattered {
            let settled = self.growth.settle(&self.sink);
            settled.map_err(|e| info.error("ftruncate", Side::Sink, e, moved))?;
        }
        let front = answer?;
        if let Some(PipelineStop::Failed(call, side, errno)) = front.stop {
            return Err(info.error(call, side, errno, moved));
        }
        Ok(front)
    }
}

/// The ring, and the pieces in flight on it.
pub struct UringPipeline<'a> {
    info: &'static Info,
    ring: Uring<'a>,
    pieces: Vec<Option<PipelinePiece>>,
    size: u64,
    grain: u64,
}

/// A piece of a job. Its buffer holds `filled` bytes of the source from `start + base` on; `sent` of them are in the
/// sink.
#[derive(Clone, Copy, Debug)]
struct PipelinePiece {
    start: u64,
    len: u64,
    base: u64,
    filled: u64,
    sent: u64,
    read: Option<Result<u32, Errno>>,
    stop: Option<PipelineStop>,
}

impl PipelinePiece {
    const EMPTY: Self =
        Self { start: 0, len: 0, base: 0, filled: 0, sent: 0, read: None, stop: None };

    fn front(&self) -> u64 {
        self.start + self.base + self.sent
    }

    /// Stores the result of a read: the bytes to write, in whole grains unless the read was complete, or the reason to
    /// stop.
    fn take_read(&mut self, read: Result<u32, Errno>, grain: u64) {
        let whole = self.len - self.base;
        self.filled = match read {
            Ok(got) if u64::from(got) == whole => whole,
            Ok(got) => u64::from(got) / grain * grain,
            Err(_) => 0,
        };
        self.stop = match read {
            Err(errno) => Some(PipelineStop::Failed("IORING_OP_READ", Side::Source, errno)),
            Ok(0) => Some(PipelineStop::End),
            Ok(_) if self.filled == 0 => Some(PipelineStop::Ragged),
            Ok(_) => None,
        };
    }
}

impl<'a> UringPipeline<'a> {
    /// Creates lanes. The knobs `depth` and `buffer` set their number and the size of their buffers. Neither exceeds
    /// the need of `amount`, because the ring makes all buffers resident. If the offsets and lengths of the jobs are
    /// multiples of `grain`, so are those of the calls.
    pub fn new(
        info: &'static Info,
        tuning: &Tuning,
        amount: Amount,
        grain: u64,
    ) -> Result<Self, Error> {
        let own = |errno| info.error("io_uring_setup", Side::Own, errno, 0);
        let least = info.least("buffer");
        let size = amount.fits(info.bytes(tuning, "buffer"), least) as u64;
        let size = size.div_ceil(grain) * grain;
        let depth = info.knob(tuning, "depth").min(amount.pieces(size as usize, least));
        let depth = u32::try_from(depth).map_err(|_| own(Errno::INVAL))?;
        let ring = Uring::new(depth, size as usize, 4096.max(grain as usize)).map_err(own)?;
        Ok(Self { info, ring, pieces: vec![None; depth as usize], size, grain })
    }

    /// Moves as much of the job as possible. When it returns `Ok`, nothing is in flight.
    ///
    /// An error concerns the ring itself. The caller must then drop the pipeline, which ends the requests in flight.
    fn run(&mut self, job: &PipelineJob<'a>) -> Result<Front, Error> {
        self.pieces.fill(None);
        let (mut next, mut furthest) = (0, 0);
        loop {
            for slot in 0..self.pieces.len() {
                let stopped = self.pieces.iter().flatten().any(|piece| piece.stop.is_some());
                if stopped || next == job.len {
                    break;
                }
                if self.pieces[slot].is_none() {
                    let len = self.size.min(job.len - next);
                    let piece = PipelinePiece { start: next, len, ..PipelinePiece::EMPTY };
                    self.begin(job, slot, piece)?;
                    next += len;
                }
            }
            if self.ring.in_flight() == 0 {
                break;
            }
            match self.ring.wait() {
                Ok(done) => self.handle(job, done, &mut furthest)?,
                // The loop waits again, because no request may stay in flight. Calls on files always end.
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.broken(errno)),
            }
        }
        let first = self.pieces.iter().flatten().min_by_key(|piece| piece.start);
        let moved = first.map_or(next, PipelinePiece::front);
        Ok(Front { moved, stop: first.and_then(|p| p.stop), scattered: furthest > moved })
    }

    /// Queues a read of the rest of a piece and the write of these bytes.
    fn begin(
        &mut self,
        job: &PipelineJob<'a>,
        slot: usize,
        piece: PipelinePiece,
    ) -> Result<(), Error> {
        let at = piece.start + piece.base;
        let len = (piece.len - piece.base) as usize;
        let (source, sink) = (job.source.0.clone(), job.sink.0.clone());
        let sink_at = job.sink.1.map_or(CURRENT, |start| start + at);
        self.pieces[slot] = Some(piece);
        let queued =
            self.ring.read_then_write(slot as u32, source, job.source.1 + at, sink, sink_at, len);
        queued.map_err(|errno| self.broken(errno))
    }

    /// Writes the bytes of the buffer that are not in the sink, from the last multiple of the grain on.
    fn write(
        &mut self,
        job: &PipelineJob<'a>,
        slot: usize,
        piece: PipelinePiece,
    ) -> Result<(), Error> {
        let from = piece.sent / self.grain * self.grain;
        let range = from as usize..piece.filled as usize;
        let sink_at = job.sink.1.map_or(CURRENT, |start| start + piece.start + piece.base + from);
        self.pieces[slot] = Some(piece);
        let queued = self.ring.write(slot as u32, job.sink.0.clone(), sink_at, range);
        queued.map_err(|errno| self.broken(errno))
    }

    fn handle(
        &mut self,
        job: &PipelineJob<'a>,
        done: Completion,
        furthest: &mut u64,
    ) -> Result<(), Error> {
        let slot = done.slot as usize;
        let Some(mut piece) = self.pieces[slot] else { return Ok(()) };
        if done.op == Op::Read {
            // The linked write also completes, possibly as cancelled. Its completion continues the piece.
            piece.read = Some(done.result);
            self.pieces[slot] = Some(piece);
            return Ok(());
        }
        let (start, mut cancelled) = (piece.sent / self.grain * self.grain, false);
        if let Some(read) = piece.read.take() {
            piece.take_read(read, self.grain);
            cancelled = done.result == Err(Errno::CANCELED);
        }
        match done.result {
            _ if piece.stop.is_some() => {}
            // After a short read, the kernel cancels the linked write. The bytes read are in the buffer.
            Err(_) if cancelled => return self.write(job, slot, piece),
            Err(errno) => {
                piece.stop = Some(PipelineStop::Failed("IORING_OP_WRITE", Side::Sink, errno));
            }
            Ok(0) => {
                piece.stop =
                    Some(PipelineStop::Failed("IORING_OP_WRITE", Side::Sink, Errno::INVAL));
            }
            Ok(put) => {
                piece.sent = start + u64::from(put);
                *furthest = (*furthest).max(piece.front());
                if piece.sent == piece.filled {
                    (piece.base, piece.filled, piece.sent) = (piece.base + piece.filled, 0, 0);
                    if piece.base < piece.len {
                        return self.begin(job, slot, piece);
                    }
                    self.pieces[slot] = None;
                    return Ok(());
                }
                if piece.sent / self.grain * self.grain > start {
                    return self.write(job, slot, piece);
                }
                piece.stop = Some(PipelineStop::Ragged);
            }
        }
        self.pieces[slot] = Some(piece);
        Ok(())
    }

    fn broken(&self, errno: Errno) -> Error {
        self.info.error("io_uring_enter", Side::Own, errno, 0)
    }
}

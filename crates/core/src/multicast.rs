//! Copies one source to several sinks (a fan). Every byte is read once and written to all sinks.
//!
//! If a sink fails, the others continue. The slowest sink determines the rate, as with tee(1).

use std::{os::fd::BorrowedFd, time::Instant};
use thalweg_sys::{Errno, buffer::Buffer, usage::Usage};

use crate::{
    End, Error, Kind, Report, Side, Tuning, Watch,
    driver::{STEP, Share, StepPace, TransferStop, wait},
    mechanisms::LAST_RESORT,
};

mod shared;

/// The settings of a fan: a copy of one source to several sinks.
#[derive(Clone, Debug, Default)]
pub struct Multicast {
    /// The maximum rate, in bytes per second.
    pub limit: Option<u64>,
    /// `true` to let the sinks share pages with each other and with the data left in the source.
    /// Has an effect only if the source is a pipe.
    pub share_pages: bool,
}

/// A sink of a fan.
#[derive(Debug)]
pub struct Branch<'a> {
    /// The sink.
    pub end: End<'a>,
    /// `true` if the whole copy stops when this sink fails.
    pub vital: bool,
}

/// The result of a fan.
#[derive(Debug)]
pub struct FanOutcome {
    /// The report. Its `bytes` is the number of bytes that every sink without an error has
    /// received.
    pub report: Report,
    /// `true` if the watcher asked to stop.
    pub stopped: bool,
    /// The error that ended reading of the source.
    pub error: Option<Error>,
    /// The results of the sinks, in the order in which they were given.
    pub sinks: Vec<Delivered>,
}

/// The result of one sink.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delivered {
    /// Bytes received, from the start of the source.
    pub bytes: u64,
    /// The error that ended delivery to this sink.
    pub error: Option<Error>,
}

impl Multicast {
    /// Copies the whole source to every sink.
    pub fn run(&self, source: End<'_>, sinks: &[Branch<'_>], watch: &mut dyn Watch) -> FanOutcome {
        let (began, cpu) = (Instant::now(), Usage::now_process());
        let mut ride = Ride {
            taken: 0,
            source,
            arms: sinks.iter().map(MulticastSink::of).collect(),
            report: Report::default(),
            pace: StepPace::new(self.limit, STEP),
            watch,
        };
        let share_pages = self.share_pages && source.kind == Kind::Pipe;
        let end = if share_pages { shared::run(&mut ride) } else { Ok(()) };
        let end = end.and_then(|()| ride.run());
        let delivered = ride.delivered();
        let mut report = ride.report;
        // If a turn with shared pages was interrupted, some delivered bytes are still in the
        // source. Then `taken` is less than `delivered`.
        report.lost = ride.taken.saturating_sub(delivered);
        report.bytes = delivered;
        report.wall = began.elapsed();
        report.cpu = Usage::now_process().since(&cpu).cpu();
        let (stopped, error) = match end {
            Ok(()) => (false, None),
            Err(TransferStop::Cancelled) => (true, None),
            Err(TransferStop::Failed(error)) => (false, Some(Error { moved: delivered, ..error })),
        };
        let sinks = ride.arms.iter().map(|arm| arm.delivered).collect();
        FanOutcome { report, stopped, error, sinks }
    }
}

struct MulticastSink<'a> {
    end: End<'a>,
    vital: bool,
    delivered: Delivered,
}

impl<'a> MulticastSink<'a> {
    fn of(branch: &Branch<'a>) -> Self {
        Self { end: branch.end, vital: branch.vital, delivered: Delivered::default() }
    }

    fn is_open(&self) -> bool {
        self.delivered.error.is_none()
    }

    fn fail(&mut self, error: Error) {
        self.delivered.error = Some(Error { moved: self.delivered.bytes, ..error });
    }
}

struct Ride<'a, 'w> {
    source: End<'a>,
    arms: Vec<MulticastSink<'a>>,
    taken: u64,
    report: Report,
    pace: StepPace,
    watch: &'w mut dyn Watch,
}

impl Ride<'_, '_> {
    /// Reads into one buffer and writes it to every sink, until the source ends.
    fn run(&mut self) -> Result<(), TransferStop> {
        let info = LAST_RESORT.info();
        let knob = info.knobs.first().map_or("", |knob| knob.name);
        let mut buffer = Buffer::new(info.bytes(&Tuning::default(), knob));
        self.begin_share(info.name);
        while self.goes_on() {
            let began = Instant::now();
            let most = buffer.len().min(self.pace.budget() as usize);
            let got = self.read(&mut buffer[..most])?;
            if got == 0 {
                break;
            }
            for n in 0..self.arms.len() {
                self.deliver(n, &buffer[..got])?;
            }
            self.turn_done(got as u64, began)?;
        }
        Ok(())
    }

    /// Returns `true` if at least one sink is open and no vital sink has failed.
    fn goes_on(&self) -> bool {
        self.arms.iter().any(MulticastSink::is_open)
            && self.arms.iter().all(|a| a.is_open() || !a.vital)
    }

    /// Returns the number of bytes that every open sink has received. If none is open, returns the
    /// largest number that any sink received.
    fn delivered(&self) -> u64 {
        let open =
            self.arms.iter().filter(|arm| arm.is_open()).map(|arm| arm.delivered.bytes).min();
        open.or_else(|| self.arms.iter().map(|arm| arm.delivered.bytes).max()).unwrap_or(0)
    }

    fn begin_share(&mut self, mechanism: &'static str) {
        self.report.shares.push(Share { mechanism, tuning: Tuning::default(), bytes: 0 });
    }

    /// Records a turn that delivered `bytes` to every open sink.
    fn turn_done(&mut self, bytes: u64, began: Instant) -> Result<(), TransferStop> {
        if let Some(share) = self.report.shares.last_mut() {
            share.bytes += bytes;
        }
        self.pace.moved(bytes, began.elapsed());
        let done = self.delivered();
        let watch = &mut *self.watch;
        watch.progress(done)?;
        Ok(self.pace.hold_back(bytes, || watch.progress(done))?)
    }

    /// Reads once from the source. Returns 0 at its end.
    fn read(&mut self, into: &mut [u8]) -> Result<usize, TransferStop> {
        loop {
            let call = self.source.read_call();
            match self.source.read(into) {
                Ok(got) => {
                    self.taken += got as u64;
                    return Ok(got);
                }
                Err(errno) => self.again(errno, call, Side::Source, self.source.fd)?,
            }
        }
    }

    /// Writes all of `bytes` to one sink. A failure is recorded in the sink's result.
    fn deliver(&mut self, n: usize, bytes: &[u8]) -> Result<(), TransferStop> {
        let mut left = bytes;
        while !left.is_empty() && self.arms[n].is_open() {
            let end = &mut self.arms[n].end;
            let (call, fd) = (end.write_call(), end.fd);
            match end.write(left) {
                // A device may accept nothing without an error. It would accept nothing the next time, too.
                Ok(0) => {
                    let error = LAST_RESORT.info().error(call, Side::Sink, Errno::IO, 0);
                    self.arms[n].fail(error);
                }
                Ok(put) => {
                    left = &left[put..];
                    self.arms[n].delivered.bytes += put as u64;
                }
                Err(errno) => match self.again(errno, call, Side::Sink, fd) {
                    Ok(()) => {}
                    Err(TransferStop::Failed(error)) => self.arms[n].fail(error),
                    Err(TransferStop::Cancelled) => return Err(TransferStop::Cancelled),
                },
            }
        }
        Ok(())
    }

    /// Handles a failed call. Returns `Ok` if it can be repeated, otherwise the reason to stop.
    fn again(
        &mut self,
        errno: Errno,
        call: &'static str,
        side: Side,
        fd: BorrowedFd<'_>,
    ) -> Result<(), TransferStop> {
        let error = LAST_RESORT.info().error(call, side, errno, 0);
        if error.is_interruption() {
            return self.look();
        }
        if !error.is_would_block() {
            return Err(TransferStop::Failed(error));
        }
        let done = self.delivered();
        wait(fd, side, || self.watch.progress(done))
    }

    fn look(&mut self) -> Result<(), TransferStop> {
        Ok(self.watch.progress(self.delivered())?)
    }
}

#[cfg(test)]
mod tests;

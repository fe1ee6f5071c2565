//! One source, several sinks: every byte is taken once and delivered to all.
//!
//! A sink that fails is left, and the others go on. The slowest sink sets the pace, as with tee(1).

use std::{
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};
use thalweg_sys::{Errno, buffer::Buffer, usage::Usage};

use crate::{
    End, Error, Kind, Report, Side, Tuning, Watch,
    driver::{Pace, Share, Stop, wait},
    mechanisms::LAST_RESORT,
};

mod shared;

/// How long one turn should take.
const TURN: Duration = Duration::from_millis(40);

/// The settings of a fan.
#[derive(Clone, Debug, Default)]
pub struct Fan {
    /// Bytes per second not to exceed.
    pub limit: Option<u64>,
    /// Let the sinks share pages with each other and with what the source still holds, where the
    /// source is a pipe.
    pub share_pages: bool,
}

/// One sink of a fan.
#[derive(Debug)]
pub struct Branch<'a> {
    /// Where the bytes go.
    pub end: End<'a>,
    /// Whether everything stops if this sink fails.
    pub vital: bool,
}

/// How a fan ended.
#[derive(Debug)]
pub struct FanOutcome {
    /// The account; `bytes` is what every sink that did not fail has received.
    pub report: Report,
    /// The watcher asked to stop.
    pub stopped: bool,
    /// Why the source could not be read on.
    pub error: Option<Error>,
    /// What became of each sink, in the order they were given.
    pub sinks: Vec<Delivered>,
}

/// What one sink received.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delivered {
    /// Bytes of the source, from its start.
    pub bytes: u64,
    /// Why it received no more.
    pub error: Option<Error>,
}

impl Fan {
    /// Delivers the whole source to every sink.
    pub fn run(&self, source: End<'_>, sinks: &[Branch<'_>], watch: &mut dyn Watch) -> FanOutcome {
        let (began, cpu) = (Instant::now(), Usage::now_process());
        let mut ride = Ride {
            taken: 0,
            source,
            arms: sinks.iter().map(Arm::of).collect(),
            report: Report::default(),
            pace: Pace::new(self.limit, TURN),
            watch,
        };
        let share_pages = self.share_pages && source.kind == Kind::Pipe;
        let end = if share_pages { shared::run(&mut ride) } else { Ok(()) };
        let end = end.and_then(|()| ride.run());
        let delivered = ride.delivered();
        let mut report = ride.report;
        // A turn of shared pages that was cut short has delivered what is still in the source.
        report.lost = ride.taken.saturating_sub(delivered);
        report.bytes = delivered;
        report.wall = began.elapsed();
        report.cpu = Usage::now_process().since(&cpu).cpu();
        let (stopped, error) = match end {
            Ok(()) => (false, None),
            Err(Stop::Cancelled) => (true, None),
            Err(Stop::Failed(error)) => (false, Some(Error { moved: delivered, ..error })),
        };
        let sinks = ride.arms.iter().map(|arm| arm.delivered).collect();
        FanOutcome { report, stopped, error, sinks }
    }
}

/// One sink under way.
struct Arm<'a> {
    end: End<'a>,
    vital: bool,
    delivered: Delivered,
}

impl<'a> Arm<'a> {
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
    arms: Vec<Arm<'a>>,
    // Bytes taken from the source.
    taken: u64,
    report: Report,
    pace: Pace,
    watch: &'w mut dyn Watch,
}

impl Ride<'_, '_> {
    /// Reads into one buffer and writes from it to every sink, until the source ends.
    fn run(&mut self) -> Result<(), Stop> {
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

    /// Whether there is a sink left, and none that all depends on has failed.
    fn goes_on(&self) -> bool {
        self.arms.iter().any(Arm::is_open) && self.arms.iter().all(|a| a.is_open() || !a.vital)
    }

    /// What every open sink has; if none is open, what the best of them got.
    fn delivered(&self) -> u64 {
        let open =
            self.arms.iter().filter(|arm| arm.is_open()).map(|arm| arm.delivered.bytes).min();
        open.or_else(|| self.arms.iter().map(|arm| arm.delivered.bytes).max()).unwrap_or(0)
    }

    fn begin_share(&mut self, mechanism: &'static str) {
        self.report.shares.push(Share { mechanism, tuning: Tuning::default(), bytes: 0 });
    }

    /// One turn of all sinks has delivered `bytes`.
    fn turn_done(&mut self, bytes: u64, began: Instant) -> Result<(), Stop> {
        if let Some(share) = self.report.shares.last_mut() {
            share.bytes += bytes;
        }
        self.pace.moved(bytes, began.elapsed());
        let done = self.delivered();
        let watch = &mut *self.watch;
        watch.progress(done)?;
        Ok(self.pace.hold_back(bytes, || watch.progress(done))?)
    }

    /// One read of the source; 0 is its end.
    fn read(&mut self, into: &mut [u8]) -> Result<usize, Stop> {
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

    /// Writes all of `bytes` to one sink; what cannot be written is in the sink's account.
    fn deliver(&mut self, n: usize, bytes: &[u8]) -> Result<(), Stop> {
        let mut left = bytes;
        while !left.is_empty() && self.arms[n].is_open() {
            let end = &mut self.arms[n].end;
            let (call, fd) = (end.write_call(), end.fd);
            match end.write(left) {
                Ok(put) => {
                    left = &left[put..];
                    self.arms[n].delivered.bytes += put as u64;
                }
                Err(errno) => match self.again(errno, call, Side::Sink, fd) {
                    Ok(()) => {}
                    Err(Stop::Failed(error)) => self.arms[n].fail(error),
                    Err(Stop::Cancelled) => return Err(Stop::Cancelled),
                },
            }
        }
        Ok(())
    }

    /// After a failed call: ready to make it again, or why not.
    fn again(
        &mut self,
        errno: Errno,
        call: &'static str,
        side: Side,
        fd: BorrowedFd<'_>,
    ) -> Result<(), Stop> {
        let error = LAST_RESORT.info().error(call, side, errno, 0);
        if error.is_interruption() {
            return self.look();
        }
        if !error.is_would_block() {
            return Err(Stop::Failed(error));
        }
        let done = self.delivered();
        wait(fd, side, || self.watch.progress(done))
    }

    fn look(&mut self) -> Result<(), Stop> {
        Ok(self.watch.progress(self.delivered())?)
    }
}

#[cfg(test)]
mod tests;

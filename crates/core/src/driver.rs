//! Moves the bytes of one transfer down a plan's ladder of mechanisms.
//!
//! The driver owns what no mechanism may own: retry, waiting, falling back, progress, cancelling,
//! pace and the account. Its one invariant: `report.bytes` bytes of the source, from its start and
//! in order, have reached the sink, and nothing else has.

use std::{
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};

use thalweg_sys::{Errno, io, usage::Usage};

use crate::{
    Cancelled, Error, Mechanism, Mover, Plan, Side, Sink, Source, Transfer, Tuning, error::symbol,
    mechanisms::LAST_RESORT,
};

mod pace;
mod report;

pub use pace::Pace;
pub use report::{Outcome, Report, Share, StepDown};

/// Somebody who looks at a transfer between its steps: a progress bar, a cancel button, a journal.
pub trait Watch {
    /// Called at least every few tens of milliseconds while bytes move, with the bytes in the sink.
    fn progress(&mut self, moved: u64) -> Result<(), Cancelled>;
}

/// Nobody watches.
impl Watch for () {
    fn progress(&mut self, _: u64) -> Result<(), Cancelled> {
        Ok(())
    }
}

impl<F: FnMut(u64) -> Result<(), Cancelled>> Watch for F {
    fn progress(&mut self, moved: u64) -> Result<(), Cancelled> {
        self(moved)
    }
}

/// Drives transfers; the settings are those of the person who asked, not of a mechanism.
#[derive(Clone, Debug, Default)]
pub struct Driver {
    /// Bytes per second not to exceed.
    pub limit: Option<u64>,
}

/// How long one call into a mechanism should take: short enough for a live bar and a quick Ctrl-C.
pub(crate) const STEP: Duration = Duration::from_millis(40);
/// How long a wait for a slow end lasts before the watcher is asked again.
const WAIT: Duration = Duration::from_millis(100);

impl Driver {
    /// Moves everything, or says in the outcome how far it came and why it stopped.
    pub fn run(&self, transfer: &mut Transfer<'_>, plan: &Plan, watch: &mut dyn Watch) -> Outcome {
        let started = Instant::now();
        let cpu = Usage::now_process();
        let mut outcome = self.run_untimed(transfer, plan, watch);
        outcome.report.wall = started.elapsed();
        outcome.report.cpu = Usage::now_process().since(&cpu).cpu();
        outcome
    }

    /// The same without the times in the report, for one of many small transfers.
    pub fn run_untimed(
        &self,
        transfer: &mut Transfer<'_>,
        plan: &Plan,
        watch: &mut dyn Watch,
    ) -> Outcome {
        let durable = transfer.needs.durable;
        let mut ride = Ride {
            pace: Pace::new(self.limit, STEP),
            limit: transfer.limit(),
            report: Report::default(),
            watch,
        };
        let mut failure = ride.descend(transfer, &plan.ladder()).err();
        if failure.is_none() && durable {
            failure = sync(&transfer.sink, ride.report.bytes).err().map(Stop::Failed);
        }
        let report = ride.report;
        match failure {
            None => Outcome { report, stopped: false, error: None },
            Some(Stop::Cancelled) => Outcome { report, stopped: true, error: None },
            Some(Stop::Failed(error)) => Outcome { report, stopped: false, error: Some(error) },
        }
    }
}

/// Why a transfer ends before its source does.
pub(crate) enum Stop {
    Cancelled,
    Failed(Error),
}

impl From<Cancelled> for Stop {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

/// What to do after a mover has stopped.
enum Next {
    Done,
    /// The mechanism cannot go on; the reason is in the report. `true`: straight to the last resort.
    Down {
        to_last: bool,
    },
}

/// How a mover came to its end, with nothing in flight.
enum End {
    /// All was moved, or a read says that the source has ended.
    Whole,
    /// The source seems to have ended.
    Unsure,
    Failed(Error),
}

struct Ride<'w> {
    pace: Pace,
    limit: Option<u64>,
    report: Report,
    watch: &'w mut dyn Watch,
}

impl Ride<'_> {
    /// Goes down the ladder until the transfer is done.
    fn descend(
        &mut self,
        transfer: &mut Transfer<'_>,
        ladder: &[(&'static dyn Mechanism, Tuning)],
    ) -> Result<(), Stop> {
        let last = (LAST_RESORT, Tuning::default());
        let ends_in_last = ladder.last().is_some_and(|(m, _)| m.info().name == last.0.info().name);
        let below = if ends_in_last { None } else { Some(&last) };
        let rungs: Vec<_> = ladder.iter().chain(below).collect();
        let mut n = 0;
        loop {
            let (mechanism, tuning) = rungs[n];
            match self.rung(transfer, *mechanism, tuning, n + 1 == rungs.len())? {
                Next::Done => return Ok(()),
                Next::Down { to_last: true } => n = rungs.len() - 1,
                Next::Down { to_last: false } => n += 1,
            }
            if let Some(step) = self.report.steps_down.last_mut() {
                step.to = rungs[n].0.info().name;
            }
        }
    }

    /// Moves as far as one mechanism goes.
    fn rung<'t>(
        &mut self,
        transfer: &mut Transfer<'t>,
        mechanism: &'static dyn Mechanism,
        tuning: &Tuning,
        is_last: bool,
    ) -> Result<Next, Stop> {
        let ends: Ends<'t> = Ends::of(transfer);
        let mut mover = match mechanism.open(transfer.rest(self.report.bytes), tuning) {
            Ok(mover) => mover,
            Err(error) => return self.step_down(error, is_last),
        };
        self.report.use_mechanism(mechanism.info().name, tuning);
        let end = self.ride(mover.as_mut(), mechanism, &ends);
        self.report.notes.extend(mover.note());
        if end.is_err() && !ends.rewindable {
            self.report.lost = mover.in_flight();
        }
        // It may hold the ends in ways of its own, and the next one opens them.
        drop(mover);
        match end? {
            End::Whole => Ok(Next::Done),
            End::Unsure => self.confirm_end(transfer, mechanism, is_last),
            End::Failed(error) => self.step_down(error, is_last),
        }
    }

    /// Lets a mover move until it ends or fails; then nothing is in flight.
    fn ride(
        &mut self,
        mover: &mut dyn Mover,
        mechanism: &'static dyn Mechanism,
        ends: &Ends<'_>,
    ) -> Result<End, Stop> {
        loop {
            let left = self.limit.map_or(u64::MAX, |l| l.saturating_sub(self.report.bytes));
            if left == 0 && mover.in_flight() == 0 {
                return Ok(End::Whole);
            }
            let budget = self.pace.budget().min(left);
            let began = Instant::now();
            match mover.advance(budget) {
                Ok(0) if mover.in_flight() > 0 => {
                    // The sink takes nothing from this call and gives no reason.
                    let info = mechanism.info();
                    self.drain(mover, ends)?;
                    return Ok(End::Failed(info.error(info.name, Side::Sink, Errno::INVAL, 0)));
                }
                Ok(0) if mover.knows_the_end() => return Ok(End::Whole),
                Ok(0) => return Ok(End::Unsure),
                Ok(moved) => {
                    self.account(moved);
                    self.pace.moved(moved, began.elapsed());
                    self.look()?;
                    let bytes = self.report.bytes;
                    self.pace.hold_back(moved, || self.watch.progress(bytes))?;
                }
                Err(error) => {
                    self.account(error.moved);
                    self.look()?;
                    if error.is_would_block() {
                        self.wait(ends, error)?;
                    } else if !error.is_interruption() {
                        self.drain(mover, ends)?;
                        return Ok(End::Failed(error));
                    }
                }
            }
        }
    }

    fn account(&mut self, moved: u64) {
        self.report.moved(moved);
    }

    /// Shows the watcher where we are.
    fn look(&mut self) -> Result<(), Stop> {
        Ok(self.watch.progress(self.report.bytes)?)
    }

    /// Records why a mechanism cannot go on, or fails if there is nothing below it.
    ///
    /// A refusal goes one rung down. Any other errno goes to the last resort at once: one plain
    /// read and write of the same range either fails with the true errno on the true side, or works.
    fn step_down(&mut self, error: Error, is_last: bool) -> Result<Next, Stop> {
        if is_last || error.mechanism == LAST_RESORT.info().name {
            return Err(Stop::Failed(Error { moved: self.report.bytes, ..error }));
        }
        self.report.steps_down.push(StepDown {
            from: error.mechanism,
            to: "",
            at: self.report.bytes,
            call: error.call,
            errno: symbol(error.errno),
            reason: error.errno_name(),
        });
        Ok(Next::Down { to_last: !error.is_refusal() })
    }

    /// Empties a mover that took bytes it has not delivered.
    fn drain(&mut self, mover: &mut dyn Mover, ends: &Ends<'_>) -> Result<(), Stop> {
        while mover.in_flight() > 0 {
            match mover.drain() {
                Ok(0) if mover.in_flight() > 0 => {
                    let info = LAST_RESORT.info();
                    let error = info.error("write", Side::Sink, Errno::IO, self.report.bytes);
                    return Err(Stop::Failed(error));
                }
                Ok(moved) => self.account(moved),
                Err(error) => {
                    self.account(error.moved);
                    if error.is_interruption() {
                        self.look()?;
                        continue;
                    }
                    if error.is_would_block() {
                        self.wait(ends, Error { side: Side::Sink, ..error })?;
                        continue;
                    }
                    return Err(Stop::Failed(Error { moved: self.report.bytes, ..error }));
                }
            }
        }
        Ok(())
    }

    /// A 0 is not the end until a read says so. If the read gives data, it is delivered and the
    /// mechanism that saw an end is left.
    fn confirm_end(
        &mut self,
        transfer: &mut Transfer<'_>,
        mechanism: &'static dyn Mechanism,
        is_last: bool,
    ) -> Result<Next, Stop> {
        let ends = Ends::of(transfer);
        let mut rest = transfer.rest(self.report.bytes);
        rest.len = Some(1);
        let plain = LAST_RESORT.open(rest, &Tuning::default());
        let mut plain = plain.map_err(Stop::Failed)?;
        let moved = loop {
            match plain.advance(1) {
                Ok(moved) => break moved,
                Err(error) if error.is_interruption() => self.look()?,
                Err(error) if error.is_would_block() => self.wait(&ends, error)?,
                Err(error) => {
                    self.report.lost = if ends.rewindable { 0 } else { plain.in_flight() };
                    return Err(Stop::Failed(Error { moved: self.report.bytes, ..error }));
                }
            }
        };
        drop(plain);
        self.account(moved);
        if moved == 0 {
            return Ok(Next::Done);
        }
        let info = mechanism.info();
        let call = info.calls.first().copied().unwrap_or(info.name);
        let next = self.step_down(info.error(call, Side::Source, Errno::INVAL, 0), is_last)?;
        if let Some(step) = self.report.steps_down.last_mut() {
            step.errno = "";
            step.reason = String::from("returned 0 before the source had ended");
        }
        Ok(next)
    }

    /// Waits until the end that would have blocked may go on, asking the watcher now and then.
    fn wait(&mut self, ends: &Ends<'_>, error: Error) -> Result<(), Stop> {
        loop {
            let source = match ends.source.filter(|_| error.side != Side::Sink) {
                Some(fd) => io::wait_readable(fd, Some(WAIT)),
                None => Ok(true),
            };
            let sink = match ends.sink.filter(|_| error.side != Side::Source) {
                Some(fd) => io::wait_writable(fd, Some(WAIT)),
                None => Ok(true),
            };
            self.look()?;
            match (source, sink) {
                (Ok(true), Ok(true)) => return Ok(()),
                (Ok(_) | Err(Errno::INTR), Ok(_) | Err(Errno::INTR)) => {}
                (Err(errno), _) | (_, Err(errno)) => {
                    let moved = self.report.bytes;
                    return Err(Stop::Failed(Error { call: "poll", errno, moved, ..error }));
                }
            }
        }
    }
}

/// The descriptors to wait for when an end would block.
struct Ends<'a> {
    source: Option<BorrowedFd<'a>>,
    sink: Option<BorrowedFd<'a>>,
    // What was taken from the source and not delivered can be read again.
    rewindable: bool,
}

impl<'a> Ends<'a> {
    fn of(transfer: &Transfer<'a>) -> Self {
        let source = if let Source::Fd(end) = &transfer.source { Some(end.fd) } else { None };
        let sink = if let Sink::Fd(end) = &transfer.sink { Some(end.fd) } else { None };
        let rewindable = match &transfer.source {
            Source::Memory(_) => true,
            Source::Fd(end) => end.at.is_some(),
        };
        Self { source, sink, rewindable }
    }
}

fn sync(sink: &Sink<'_>, moved: u64) -> Result<(), Error> {
    let Sink::Fd(end) = sink else { return Ok(()) };
    match io::fdatasync(end.fd) {
        // Pipes and sockets have no stable storage to reach.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(errno) => {
            let mechanism = LAST_RESORT.info().name;
            Err(Error { mechanism, call: "fdatasync", errno, side: Side::Sink, moved })
        }
    }
}

//! One transfer as steps that never sleep: for event loops, async callers, and the loop of `run`.
//!
//! The engine owns what no mechanism may own: retry, falling back and the account. Its one
//! invariant: `bytes` bytes of the source, from its start and in order, have reached the sink, and
//! nothing else has.

use std::{mem, os::fd::BorrowedFd};

use thalweg_sys::Errno;

use super::{
    Outcome, Report,
    cost::Clock,
    ends::{Ends, sync},
    ladder::Ladder,
};
use crate::{Error, Kind, Mover, Plan, Side, Transfer, Tuning, Unfit, mechanisms::LAST_RESORT};

/// A transfer under way, which moves only while [`advance`](Self::advance) is called.
///
/// ```
/// use rustix::event::epoll;
/// use std::{io::Read, os::unix::net::UnixStream, thread};
/// use thalweg_core::{Facts, Plan, Request, Side, Step, Transfer, TransferRun};
///
/// # let file = tempfile::tempfile()?;
/// # file.set_len(1 << 20)?;
/// let (socket, mut peer) = UnixStream::pair()?;
/// # let reader = thread::spawn(move || peer.read_to_end(&mut Vec::new()));
/// socket.set_nonblocking(true)?;
/// let transfer = Transfer::between(&file, &socket)?;
/// let request = Request { stepwise: true, ..Request::default() };
/// let plan = Plan::make(&Facts::of(&transfer), &request, None);
/// let mut run = TransferRun::start(transfer, &plan)?;
///
/// // One of many: an event loop has a run for every connection, told apart by this number.
/// let loop_ = epoll::create(epoll::CreateFlags::CLOEXEC)?;
/// epoll::add(&loop_, &socket, epoll::EventData::new_u64(7), epoll::EventFlags::OUT)?;
/// let outcome = 'events: loop {
///     let mut events = Vec::with_capacity(16);
///     epoll::wait(&loop_, rustix::buffer::spare_capacity(&mut events), None)?;
///     for _ready in &events {
///         // A few steps, so that one connection does not keep the others waiting.
///         for _ in 0..4 {
///             match run.advance(64 << 10) {
///                 Step::Moved => continue,
///                 Step::Blocked(side) => assert_eq!(side, Side::Sink),
///                 Step::Done | Step::Failed(_) => break 'events run.end(),
///             }
///             break;
///         }
///     }
/// };
/// assert_eq!(outcome.into_result()?.bytes, 1 << 20);
/// # drop(socket);
/// # assert_eq!(reader.join().unwrap()?, 1 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Dropping it, or ending it before it is done, leaves in the sink what was moved by then.
pub struct TransferRun<'a> {
    transfer: Transfer<'a>,
    ends: Ends<'a>,
    limit: Option<u64>,
    ladder: Ladder,
    state: State<'a>,
    // A mechanism has the memory that is to be filled, and it cannot be taken back.
    memory_is_given: bool,
    report: Report,
}

/// How one step ended.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// The budget was used up, or the call was interrupted: call again.
    Moved,
    /// Nothing can be moved before the source can be read (`Side::Source`), or the sink be written
    /// (`Side::Sink`). Some bytes may have been moved before.
    Blocked(Side),
    /// All is moved, and durable if that was asked for.
    Done,
    /// It cannot go on; `moved` is the true prefix in the sink.
    Failed(Error),
}

type Opened<'a> = Box<dyn Mover + 'a>;

enum State<'a> {
    /// The mechanism of this rung is not opened yet.
    Closed,
    Moving(Opened<'a>),
    /// It is left for this reason, as soon as what it took is delivered.
    Draining(Opened<'a>, Error),
    /// A mechanism saw the end of the source: a plain read of one byte finds out.
    Confirming(Opened<'a>),
    Over(Result<(), Error>),
}

impl<'a> TransferRun<'a> {
    /// Begins a transfer whose steps never sleep. A wait for a disk does not count as sleep: no
    /// flag avoids it. Every other end has to be opened with `O_NONBLOCK`, and is refused if not.
    ///
    /// Mechanisms that wait inside a step are left out. A plan asked for with
    /// [`stepwise`](crate::Request::stepwise) gives the reason; in one that was not, the report says
    /// that they were stepped down from.
    pub fn start(transfer: Transfer<'a>, plan: &Plan) -> Result<Self, Unfit> {
        let mut run = Self::down(transfer, plan);
        run.ends.never_block()?;
        run.report.steps_down = run.ladder.never_sleep();
        Ok(run)
    }

    /// The same with whatever ends and mechanisms: its steps may sleep.
    pub(super) fn down(transfer: Transfer<'a>, plan: &Plan) -> Self {
        let ends = Ends::of(&transfer);
        Self {
            ladder: Ladder::new(plan, ends.addressed),
            ends,
            limit: transfer.limit(),
            transfer,
            state: State::Closed,
            memory_is_given: false,
            report: Report::default(),
        }
    }

    /// Does not compare what it takes with what was measured.
    pub(super) fn trust(&mut self) {
        self.ladder.trust();
    }

    /// Bytes of the source, from its start, that are in the sink.
    pub fn bytes(&self) -> u64 {
        self.report.bytes
    }

    /// Moves about `budget` bytes, fewer if an end would make it wait. Once it has ended, every
    /// call says so again.
    pub fn advance(&mut self, budget: u64) -> Step {
        loop {
            // None: the state has changed, and the caller need not know.
            let step = match mem::replace(&mut self.state, State::Closed) {
                State::Closed => self.open(),
                State::Moving(mover) => self.step(mover, budget.max(1)),
                State::Draining(mover, error) => self.drain(mover, error),
                State::Confirming(plain) => self.confirm(plain),
                State::Over(end) => {
                    self.state = State::Over(end);
                    Some(end.map_or_else(Step::Failed, |()| Step::Done))
                }
            };
            if let Some(step) = step {
                return step;
            }
        }
    }

    /// Ends it, done or not: what came of it. Before it was done, that is a transfer that was
    /// stopped. The times in the report are the caller's to measure.
    pub fn end(mut self) -> Outcome {
        let (stopped, error) = match self.state {
            State::Over(end) => (false, end.err()),
            _ => (true, None),
        };
        self.close();
        self.report.looks = self.ladder.looks();
        Outcome { report: self.report, stopped, error }
    }

    /// The descriptor that a blocked side waits for.
    pub(super) fn descriptor(&self, side: Side) -> Option<BorrowedFd<'a>> {
        self.ends.descriptor(side)
    }

    /// Ends it for a reason found outside.
    pub(super) fn fail(&mut self, error: Error) {
        self.close();
        self.failed(error);
    }

    fn open(&mut self) -> Option<Step> {
        let (mechanism, tuning) = self.ladder.rung();
        let info = mechanism.info();
        let (source, sink) = (self.transfer.source.kind(), self.transfer.sink.kind());
        if sink == Kind::Memory && info.pair(source, sink).is_none() {
            return self.step_down(info.error("open", Side::Sink, Errno::INVAL, 0));
        }
        self.memory_is_given = sink == Kind::Memory;
        match mechanism.open(self.transfer.rest(self.report.bytes), tuning) {
            Ok(mover) => {
                self.report.use_mechanism(info.name, tuning);
                self.state = State::Moving(mover);
                None
            }
            Err(error) => self.step_down(error),
        }
    }

    fn step(&mut self, mut mover: Opened<'a>, budget: u64) -> Option<Step> {
        let left = self.limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.report.bytes));
        if left == 0 && mover.in_flight() == 0 {
            return self.finish(mover);
        }
        let clock = self.ladder.wants_costs().then(Clock::start);
        match mover.advance(budget.min(left).min(self.ladder.most())) {
            Ok(0) if mover.in_flight() > 0 => {
                // The sink takes nothing from this call and gives no reason.
                let info = self.ladder.rung().0.info();
                let error = info.error(info.name, Side::Sink, Errno::INVAL, 0);
                self.state = State::Draining(mover, error);
                None
            }
            Ok(0) if mover.knows_the_end() || self.memory_is_given => self.finish(mover),
            Ok(0) => self.begin_to_confirm(mover),
            Ok(moved) => {
                self.go_on(mover, moved, clock);
                Some(Step::Moved)
            }
            Err(error) => {
                let pause = self.pause(&error);
                if pause.is_some() {
                    self.go_on(mover, error.moved, clock);
                } else {
                    self.report.moved(error.moved);
                    self.state = State::Draining(mover, error);
                }
                pause
            }
        }
    }

    /// Books what a step has moved. Where mechanisms take turns the next one may be another: both ends are
    /// addressed there, so that what this one has taken and not delivered is taken again.
    fn go_on(&mut self, mover: Opened<'a>, moved: u64, clock: Option<Clock>) {
        self.report.moved(moved);
        if clock.is_some_and(|clock| self.ladder.moved(moved, clock.stop())) {
            self.leave(mover);
        } else {
            self.state = State::Moving(mover);
        }
    }

    /// What a call that is to be made again says to the caller; `None` for any other error.
    fn pause(&self, error: &Error) -> Option<Step> {
        if error.is_would_block() {
            return Some(self.ends.blocked(error.side).map_or(Step::Moved, Step::Blocked));
        }
        error.is_interruption().then_some(Step::Moved)
    }

    /// Empties a mover that took bytes it has not delivered, and leaves it.
    fn drain(&mut self, mut mover: Opened<'a>, reason: Error) -> Option<Step> {
        if mover.in_flight() == 0 {
            self.leave(mover);
            return self.step_down(reason);
        }
        let error = match mover.drain() {
            Ok(0) if mover.in_flight() > 0 => {
                LAST_RESORT.info().error("write", Side::Sink, Errno::IO, 0)
            }
            Ok(moved) => {
                self.report.moved(moved);
                self.state = State::Draining(mover, reason);
                return Some(Step::Moved);
            }
            Err(error) => {
                self.report.moved(error.moved);
                // Bytes that it took wait for the sink; those that it only showed there are taken now.
                let side = if error.side == Side::Source { Side::Source } else { Side::Sink };
                let pause = self.pause(&Error { side, ..error });
                if pause.is_some() {
                    self.state = State::Draining(mover, reason);
                    return pause;
                }
                error
            }
        };
        self.leave(mover);
        self.failed(error)
    }

    /// A 0 is not the end until a read says so. If the read gives data, it is delivered and the
    /// mechanism that saw an end is left.
    fn begin_to_confirm(&mut self, mover: Opened<'a>) -> Option<Step> {
        self.leave(mover);
        let mut rest = self.transfer.rest(self.report.bytes);
        rest.len = Some(1);
        match LAST_RESORT.open(rest, &Tuning::default()) {
            Ok(plain) => {
                self.state = State::Confirming(plain);
                None
            }
            Err(error) => self.failed(error),
        }
    }

    fn confirm(&mut self, mut plain: Opened<'a>) -> Option<Step> {
        let answer = plain.advance(1);
        let pause = answer.as_ref().err().and_then(|error| self.pause(error));
        if pause.is_some() {
            self.state = State::Confirming(plain);
            return pause;
        }
        let moved = match answer {
            Ok(0) => return self.finish(plain),
            Ok(moved) => moved,
            Err(error) => {
                self.leave(plain);
                return self.failed(error);
            }
        };
        self.leave(plain);
        self.report.moved(moved);
        let info = self.ladder.rung().0.info();
        let call = info.calls.first().copied().unwrap_or(info.name);
        let told = self.report.steps_down.len();
        self.step_down(info.error(call, Side::Source, Errno::INVAL, 0));
        if let Some(left) = self.report.steps_down.get_mut(told) {
            left.errno = "";
            left.reason = String::from("returned 0 before the source had ended");
        }
        None
    }

    /// Records why a mechanism cannot go on, or fails if nothing can follow it.
    fn step_down(&mut self, error: Error) -> Option<Step> {
        let below = if self.memory_is_given {
            None
        } else {
            self.ladder.step_down(&error, self.report.bytes)
        };
        match below {
            Some(step) => self.report.steps_down.push(step),
            None => return self.failed(error),
        }
        None
    }

    /// Takes down what a mover has to say, before it lets go of the ends for the next one to open.
    fn leave(&mut self, mover: Opened<'a>) {
        self.report.notes.extend(mover.note());
        self.report.lost = if self.ends.rewindable { 0 } else { mover.in_flight() };
        drop(mover);
    }

    /// Leaves whatever is open.
    fn close(&mut self) {
        match mem::replace(&mut self.state, State::Closed) {
            State::Moving(mover) | State::Draining(mover, _) | State::Confirming(mover) => {
                self.leave(mover);
            }
            State::Closed | State::Over(_) => {}
        }
    }

    fn finish(&mut self, mover: Opened<'a>) -> Option<Step> {
        self.leave(mover);
        let end = if self.transfer.needs.durable { sync(&self.transfer.sink) } else { Ok(()) };
        match end {
            Ok(()) => self.state = State::Over(Ok(())),
            Err(error) => return self.failed(error),
        }
        None
    }

    fn failed(&mut self, error: Error) -> Option<Step> {
        self.state = State::Over(Err(Error { moved: self.report.bytes, ..error }));
        None
    }
}

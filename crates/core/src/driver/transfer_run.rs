//! Runs a transfer in steps that never sleep, for event loops, async callers and [`Driver::run`](super::Driver::run).
//!
//! The engine ([`TransferRun`]) retries calls, falls back to other mechanisms and counts bytes. Mechanisms do none of
//! this. The engine's invariant: the sink has received the first `bytes` bytes of the source, in order, and nothing
//! else.

use std::{mem, os::fd::BorrowedFd, time::Instant};

use thalweg_sys::Errno;

use super::{
    Outcome, Report,
    cost::CostClock,
    ends::{EngineEnds, sync},
    ladder::Ladder,
    readahead::{SourceReadahead, SourceRest},
};
use crate::{
    End, Error, Kind, Mover, Plan, Side, Source, Transfer, Tuning, Unfit, mechanisms::LAST_RESORT,
};

/// A transfer in progress, which moves bytes only while [`advance`](Self::advance) is called.
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
/// // An event loop has one run per connection. This number identifies the connection.
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
/// If the run is dropped or ended before it is done, the sink keeps the bytes moved so far.
pub struct TransferRun<'a> {
    transfer: Transfer<'a>,
    ends: EngineEnds<'a>,
    limit: Option<u64>,
    ladder: Ladder,
    // `None` without read-ahead. A request may wait for a busy disk, so only callers that may wait enable it.
    readahead: Option<SourceReadahead>,
    state: EngineState<'a>,
    // `true` if a mechanism holds the memory to fill. The engine cannot take the memory back for another mechanism.
    memory_is_given: bool,
    report: Report,
}

/// The result of one step.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Bytes were moved, or the call was interrupted. Call again.
    Moved,
    /// The source must become readable (`Side::Source`) or the sink writable (`Side::Sink`) before more bytes can be
    /// moved. This step may have moved some bytes before it was blocked.
    Blocked(Side),
    /// All bytes are moved, and are durable if the caller asked for that.
    Done,
    /// The transfer failed. `moved` is the number of bytes from the start of the source that are in the sink.
    Failed(Error),
}

type OpenMover<'a> = Box<dyn Mover + 'a>;

enum EngineState<'a> {
    /// No mechanism is open. The next call of `advance` opens one.
    Closed,
    Moving(OpenMover<'a>),
    /// The engine delivers the bytes that the mechanism took, and then leaves the mechanism because of this error.
    Draining(OpenMover<'a>, Error),
    /// A mechanism reported the end of the source. A plain read of one byte verifies it.
    Confirming(OpenMover<'a>),
    Over(Result<(), Error>),
}

impl<'a> TransferRun<'a> {
    /// Starts a transfer with steps that never sleep. A step may still wait for a disk, because no flag prevents that.
    /// Every other endpoint must be opened with `O_NONBLOCK`; otherwise this fails.
    ///
    /// Mechanisms that wait inside a step are excluded. If the plan was made with
    /// [`stepwise`](crate::Request::stepwise), its verdicts contain the reason. Otherwise, `steps_down` in the report
    /// lists them.
    pub fn start(transfer: Transfer<'a>, plan: &Plan) -> Result<Self, Unfit> {
        let mut run = Self::down(transfer, plan);
        run.ends.never_block()?;
        run.report.steps_down = run.ladder.never_sleep();
        Ok(run)
    }

    /// Starts a transfer with any endpoints and mechanisms. Its steps may sleep.
    pub(super) fn down(transfer: Transfer<'a>, plan: &Plan) -> Self {
        let ends = EngineEnds::of(&transfer);
        Self {
            ladder: Ladder::new(plan, ends.addressed),
            ends,
            limit: transfer.limit(),
            transfer,
            readahead: None,
            state: EngineState::Closed,
            memory_is_given: false,
            report: Report::default(),
        }
    }

    /// Enables read-ahead for a slow source file.
    pub(super) fn read_ahead(&mut self) {
        self.readahead = Some(SourceReadahead::default());
    }

    /// Stops comparing the rate of the transfer with the rate in the profile.
    pub(super) fn trust(&mut self) {
        self.ladder.trust();
    }

    /// Returns the number of bytes, from the start of the source, that are in the sink.
    pub fn bytes(&self) -> u64 {
        self.report.bytes
    }

    /// Moves about `budget` bytes, or fewer if an endpoint blocks. After the end of the transfer, every call returns
    /// the final result again.
    pub fn advance(&mut self, budget: u64) -> Step {
        loop {
            // `None` means that only the state has changed, so the loop continues.
            let step = match mem::replace(&mut self.state, EngineState::Closed) {
                EngineState::Closed => self.open(),
                EngineState::Moving(mover) => self.step(mover, budget.max(1)),
                EngineState::Draining(mover, error) => self.drain(mover, error),
                EngineState::Confirming(plain) => self.confirm(plain),
                EngineState::Over(end) => {
                    self.state = EngineState::Over(end);
                    Some(end.map_or_else(Step::Failed, |()| Step::Done))
                }
            };
            if let Some(step) = step {
                return step;
            }
        }
    }

    /// Ends the transfer and returns its outcome. A transfer that has neither completed nor failed counts as stopped.
    /// The caller fills in the times of the report.
    pub fn end(mut self) -> Outcome {
        let (stopped, error) = match self.state {
            EngineState::Over(end) => (false, end.err()),
            _ => (true, None),
        };
        self.close();
        self.report.looks = self.ladder.looks();
        Outcome { report: self.report, stopped, error }
    }

    /// Returns the descriptor to poll for a blocked side.
    pub(super) fn descriptor(&self, side: Side) -> Option<BorrowedFd<'a>> {
        self.ends.descriptor(side)
    }

    /// Ends the transfer with an error from outside the engine.
    pub(super) fn fail(&mut self, error: Error) {
        self.close();
        self.failed(error);
    }

    fn open(&mut self) -> Option<Step> {
        let (mechanism, tuning) = self.ladder.step();
        let info = mechanism.info();
        let (source, sink) = (self.transfer.source.kind(), self.transfer.sink.kind());
        if sink == Kind::Memory && info.pair(source, sink).is_none() {
            return self.step_down(info.error("open", Side::Sink, Errno::INVAL, 0));
        }
        self.memory_is_given = sink == Kind::Memory;
        match mechanism.open(self.transfer.rest(self.report.bytes), tuning) {
            Ok(mover) => {
                self.report.use_mechanism(info.name, tuning);
                self.state = EngineState::Moving(mover);
                None
            }
            Err(error) => self.step_down(error),
        }
    }

    fn step(&mut self, mut mover: OpenMover<'a>, budget: u64) -> Option<Step> {
        let left = self.limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.report.bytes));
        if left == 0 && mover.in_flight() == 0 {
            return self.finish(mover);
        }
        // The clock starts before the read-ahead requests, because they belong to the cost of the step.
        let clock = self.ladder.wants_costs().then(CostClock::start);
        let (began, reads_ahead) = (Instant::now(), self.may_read_ahead());
        let most = if reads_ahead { self.request_ahead() } else { u64::MAX };
        match mover.advance(budget.min(left).min(self.ladder.most()).min(most)) {
            Ok(0) if mover.in_flight() > 0 => {
                // The call delivered nothing and returned no errno. EINVAL makes the engine fall back.
                let info = self.ladder.step().0.info();
                let error = info.error(info.name, Side::Sink, Errno::INVAL, 0);
                self.state = EngineState::Draining(mover, error);
                None
            }
            Ok(0) if mover.knows_the_end() || self.memory_is_given => self.finish(mover),
            Ok(0) => self.begin_to_confirm(mover),
            Ok(moved) => {
                if let Some(readahead) = self.readahead.as_mut().filter(|_| reads_ahead) {
                    readahead.after_step(moved, began.elapsed());
                }
                self.go_on(mover, moved, clock);
                Some(Step::Moved)
            }
            Err(error) => {
                let pause = self.pause(&error);
                if pause.is_some() {
                    self.go_on(mover, error.moved, clock);
                } else {
                    self.report.moved(error.moved);
                    self.state = EngineState::Draining(mover, error);
                }
                pause
            }
        }
    }

    /// Returns `true` if the next step may request bytes for later steps. During a comparison it may not, because one
    /// mechanism would request the bytes that the next one reads.
    fn may_read_ahead(&mut self) -> bool {
        self.readahead.is_some() && self.ladder.reads_page_cache() && !self.ladder.is_comparing()
    }

    /// Requests bytes of the source for the next steps. Returns the maximum number of bytes for the next step.
    fn request_ahead(&mut self) -> u64 {
        let Source::Fd(End { fd, kind: Kind::File, at: Some(at) }) = &self.transfer.source else {
            self.readahead = None;
            return u64::MAX;
        };
        let done = self.report.bytes;
        let len = self.limit.map_or(u64::MAX, |limit| limit.saturating_sub(done));
        let rest = SourceRest { fd: *fd, at: at.saturating_add(done), len };
        let readahead = self.readahead.as_mut();
        let most = readahead.map_or(u64::MAX, |readahead| readahead.before_step(rest));
        if most < u64::MAX {
            self.ladder.forget_rate();
        }
        most
    }

    /// Records the bytes that a step moved, and leaves the mechanism if another one has the next turn. Mechanisms take
    /// turns only if both endpoints are addressed by offset. The next mechanism can therefore read again the bytes that
    /// this one took and did not deliver.
    fn go_on(&mut self, mover: OpenMover<'a>, moved: u64, clock: Option<CostClock>) {
        self.report.moved(moved);
        if clock.is_some_and(|clock| self.ladder.moved(moved, clock.stop())) {
            self.leave(mover);
        } else {
            self.state = EngineState::Moving(mover);
        }
    }

    /// Returns the step to report if the failed call is to be repeated (EAGAIN, EINTR); `None` for any other error.
    fn pause(&self, error: &Error) -> Option<Step> {
        if error.is_would_block() {
            return Some(self.ends.blocked(error.side).map_or(Step::Moved, Step::Blocked));
        }
        error.is_interruption().then_some(Step::Moved)
    }

    /// Delivers the bytes that a mover took and has not delivered, then leaves the mover.
    fn drain(&mut self, mut mover: OpenMover<'a>, reason: Error) -> Option<Step> {
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
                self.state = EngineState::Draining(mover, reason);
                return Some(Step::Moved);
            }
            Err(error) => {
                self.report.moved(error.moved);
                // Bytes in flight wait for the sink.
                let pause = self.pause(&Error { side: Side::Sink, ..error });
                if pause.is_some() {
                    self.state = EngineState::Draining(mover, reason);
                    return pause;
                }
                error
            }
        };
        self.leave(mover);
        self.failed(error)
    }

    /// Verifies the end of the source with a plain read, because a mechanism may return 0 before the end. If the read
    /// returns data, the engine delivers the data and leaves the mechanism.
    fn begin_to_confirm(&mut self, mover: OpenMover<'a>) -> Option<Step> {
        self.leave(mover);
        let mut rest = self.transfer.rest(self.report.bytes);
        rest.len = Some(1);
        match LAST_RESORT.open(rest, &Tuning::default()) {
            Ok(plain) => {
                self.state = EngineState::Confirming(plain);
                None
            }
            Err(error) => self.failed(error),
        }
    }

    fn confirm(&mut self, mut plain: OpenMover<'a>) -> Option<Step> {
        let answer = plain.advance(1);
        let pause = answer.as_ref().err().and_then(|error| self.pause(error));
        if pause.is_some() {
            self.state = EngineState::Confirming(plain);
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
        let info = self.ladder.step().0.info();
        let call = info.calls.first().copied().unwrap_or(info.name);
        let told = self.report.steps_down.len();
        self.step_down(info.error(call, Side::Source, Errno::INVAL, 0));
        if let Some(left) = self.report.steps_down.get_mut(told) {
            left.errno = "";
            left.reason = String::from("returned 0 before the source had ended");
        }
        None
    }

    /// Falls back to another mechanism and records the fallback. Fails if no mechanism is left.
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

    /// Records the notes of a mover and drops it, so that the next one can open the endpoints.
    fn leave(&mut self, mover: OpenMover<'a>) {
        self.report.notes.extend(mover.note());
        self.report.lost = if self.ends.rewindable { 0 } else { mover.in_flight() };
        drop(mover);
    }

    fn close(&mut self) {
        match mem::replace(&mut self.state, EngineState::Closed) {
            EngineState::Moving(mover)
            | EngineState::Draining(mover, _)
            | EngineState::Confirming(mover) => {
                self.leave(mover);
            }
            EngineState::Closed | EngineState::Over(_) => {}
        }
    }

    fn finish(&mut self, mover: OpenMover<'a>) -> Option<Step> {
        self.leave(mover);
        let end = if self.transfer.needs.durable { sync(&self.transfer.sink) } else { Ok(()) };
        match end {
            Ok(()) => self.state = EngineState::Over(Ok(())),
            Err(error) => return self.failed(error),
        }
        None
    }

    fn failed(&mut self, error: Error) -> Option<Step> {
        self.state = EngineState::Over(Err(Error { moved: self.report.bytes, ..error }));
        None
    }
}

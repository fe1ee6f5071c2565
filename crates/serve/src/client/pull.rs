//! Fetches one file over several connections at once. Each connection fetches a span of the file. All connections
//! write into one partial file with one journal.

use std::{
    cell::Cell,
    os::fd::AsFd,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

use thalweg_core::{Cancelled, Report};
use thalweg_sys::fault;
use thalweg_tree::journal::Remote;

use super::{
    FetchError, FetchOptions, FetchUrl,
    ask::ask,
    body::{ResponseBody, book, trim},
    connect::FetchConnection,
    deadline::{CancelCheck, NetDeadline},
    download::Download,
    head::ResponseHead,
    resume::{FileRequest, RangeOutcome, classify_response},
    retry,
    scaler::{ConnectionScaler, Connections, ScalingAdvice, TICK},
    spans::Spans,
    watcher::{FetchProgress, FetchWatcher},
};
use crate::http::range::ByteRange;

/// State shared by the connections of one file.
pub struct ParallelFetch<'a> {
    pub target: &'a FetchUrl,
    pub options: &'a FetchOptions,
    pub watcher: &'a dyn FetchWatcher,
    pub known: &'a Remote,
    pub is_conditional: bool,
    /// Bytes present before this run.
    pub resumed: u64,
    pub state: Mutex<ParallelState<'a>>,
    pub bell: Condvar,
}

/// The part of the state that the connections change.
pub struct ParallelState<'a> {
    download: &'a mut Download,
    spans: Spans,
    /// Connections in the order in which they started.
    alive: Vec<usize>,
    /// Number of connections that should end, the most recent first.
    unwanted: usize,
    error: Option<FetchError>,
    /// `true` after an unexpected response. All connections then end, and a single one finds out the reason.
    is_upset: bool,
    /// Bytes that were present before the connections started.
    had: u64,
    report: Report,
}

/// A response with an unread body.
pub struct OpenResponse {
    pub connection: FetchConnection,
    pub head: ResponseHead,
    /// The range of the file that the body contains.
    pub span: ByteRange,
}

/// Counters of one thread.
#[derive(Default)]
struct ThreadTally {
    /// Bytes of the current span.
    came: u64,
    /// Bytes of all spans, by mechanism.
    report: Report,
}

/// Smallest number of bytes for which a separate request is sent.
pub const LEAST: u64 = 1 << 20;

/// The outcome of several connections.
pub struct Pulled {
    pub report: Report,
    /// `Ok(false)`: bytes are missing, and a single connection has to continue.
    pub ended: Result<bool, FetchError>,
}

impl<'a> ParallelState<'a> {
    pub fn new(download: &'a mut Download, size: u64) -> Self {
        Self {
            had: download.done().bytes(),
            download,
            spans: Spans::of(size),
            alive: Vec::new(),
            unwanted: 0,
            error: None,
            is_upset: false,
            report: Report::default(),
        }
    }

    fn is_over(&self) -> bool {
        self.is_upset || self.error.is_some()
    }

    fn is_unwanted(&self, owner: usize) -> bool {
        self.unwanted > 0 && self.alive.len() > 1 && self.alive.last() == Some(&owner)
    }
}

impl<'a> ParallelFetch<'a> {
    /// Fetches the missing bytes. `first` is the response to a request for the first gap.
    pub fn all(self, first: OpenResponse) -> Pulled {
        let mut scaler = ConnectionScaler::new(self.options.connections);
        let at_once = match self.options.connections {
            Connections::Auto => 1,
            Connections::Exactly(number) => number.max(1),
        };
        thread::scope(|scope| {
            let mut owner = 0;
            let mut add = |first: Option<OpenResponse>| {
                let (pull, own, faults) = (&self, owner, fault::inherit());
                owner += 1;
                pull.state().alive.push(own);
                let work = move || faults.enter(|| pull.work(own, first));
                let begun = thread::Builder::new().spawn_scoped(scope, work);
                // If a limit on threads prevents another one, the existing threads continue.
                if begun.is_err() {
                    pull.state().alive.pop();
                }
                begun.is_ok()
            };
            self.state().spans.take(0, first.span);
            if !add(Some(first)) {
                self.state().is_upset = true;
            }
            for _ in 1..at_once {
                add(None);
            }
            loop {
                let state = self.state();
                if state.alive.is_empty() {
                    break;
                }
                let waited = self.bell.wait_timeout(state, TICK);
                let (state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
                let there = state.download.done().bytes();
                drop(state);
                if let Err(cancelled) = self.watcher.check_cancelled() {
                    self.state().error.get_or_insert(cancelled.into());
                    continue;
                }
                if !waited.timed_out() {
                    continue;
                }
                match scaler.tick(there) {
                    ScalingAdvice::Stay => {}
                    ScalingAdvice::Add => {
                        add(None);
                    }
                    ScalingAdvice::Drop => self.state().unwanted += 1,
                }
            }
        });
        let mut state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        // A connection may move bytes beyond its span before it notices that another connection fetches them. The
        // report counts such bytes once.
        trim(&mut state.report, state.download.done().bytes() - state.had);
        let is_whole = state.download.done().gaps(self.known.size).is_empty();
        let ended = state.error.map_or(Ok(is_whole), Err);
        Pulled { report: state.report, ended }
    }

    fn state(&self) -> MutexGuard<'_, ParallelState<'a>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fetches one span after the other, each over a new connection, until no span remains for this thread.
    fn work(&self, owner: usize, mut first: Option<OpenResponse>) {
        let (mut tries, mut tally) = (0, ThreadTally::default());
        loop {
            let answer = first.take();
            // The span of an existing response is already assigned.
            let span = answer.as_ref().map(|answer| answer.span);
            let Some(span) = span.or_else(|| self.claim(owner)) else { break };
            tally.came = 0;
            let brought = self.bring(owner, span, answer, &mut tally);
            self.state().spans.release(owner);
            tries = if tally.came > 0 { 0 } else { tries };
            let Err(error) = brought else { continue };
            tries += 1;
            if !self.may_retry_after(error, tries) {
                break;
            }
        }
        let mut state = self.state();
        book(&mut state.report, tally.report);
        // The most recent connection may also end by an error before it notices that it is unwanted.
        if state.is_unwanted(owner) {
            state.unwanted -= 1;
        }
        state.alive.retain(|own| *own != owner);
        self.bell.notify_all();
    }

    fn claim(&self, owner: usize) -> Option<ByteRange> {
        let mut state = self.state();
        let state = &mut *state;
        if state.is_over() || state.is_unwanted(owner) {
            return None;
        }
        state.spans.claim(owner, state.download.done(), LEAST)
    }

    /// Returns `true` if this thread should retry after an error.
    fn may_retry_after(&self, error: FetchError, tries: u32) -> bool {
        let is_alone = {
            let state = self.state();
            if state.is_over() {
                // Another thread has ended the fetch, and its error is the reason why this thread stops.
                return false;
            }
            state.alive.len() == 1
        };
        let pause = retry::pause(tries, self.options.retries, error.after());
        if let Some(pause) = pause.filter(|_| error.is_passing()) {
            let report = |message: &str| self.watcher.report(message);
            return retry::wait(&error, pause, report, &|| self.check()).is_ok();
        }
        // A server may allow fewer connections than this fetch opened; the other connections continue.
        let is_of_this_one = error.is_passing() || matches!(error, FetchError::Status { .. });
        if !is_of_this_one || is_alone {
            self.state().error.get_or_insert(error);
        }
        false
    }

    fn check(&self) -> Result<(), Cancelled> {
        if self.state().is_over() { Err(Cancelled) } else { self.watcher.check_cancelled() }
    }

    /// Sends a request, unless `first` already holds its response, and receives the body.
    fn bring(
        &self,
        owner: usize,
        span: ByteRange,
        first: Option<OpenResponse>,
        tally: &mut ThreadTally,
    ) -> Result<(), FetchError> {
        let check = || self.check();
        let OpenResponse { mut connection, head, span } = match first {
            Some(answer) => answer,
            None => match self.ask(owner, span, &check)? {
                Some(answer) => answer,
                None => return Ok(()),
            },
        };
        let ByteRange { from, to } = span;
        let ThreadTally { came, report } = tally;
        let (fd, is_at_end) = (self.state().download.descriptor()?, Cell::new(false));
        let end = self.state().download.end(fd.as_fd(), from)?;
        let mut note = |moved: u64| -> Result<(), Cancelled> {
            *came = moved;
            let (there, is_over) = {
                let mut state = self.state();
                state.download.note(from, from + moved);
                let is_at_its_end = state.spans.advance(owner, from + moved);
                is_at_end.set(is_at_its_end || state.is_unwanted(owner));
                (state.download.done().bytes(), state.is_over())
            };
            let (resumed, size) = (self.resumed, Some(self.known.size));
            self.watcher.progress(FetchProgress { resumed, there, size })?;
            if is_over || is_at_end.get() { Err(Cancelled) } else { Ok(()) }
        };
        let body = ResponseBody {
            connection: &mut connection,
            deadline: NetDeadline { limit: self.options.stall, check: &check },
            way: &self.options.way,
            end,
            note: &mut note,
            report,
            plans: None,
        };
        match body.bring(head.framing()?, Some(to - from)) {
            // The span has ended, or the connection is unwanted: another connection fetches the following bytes.
            Err(FetchError::Cancelled) if is_at_end.get() => Ok(()),
            ended => ended.map(drop),
        }
    }

    /// Sends a request; `None` if the response is unexpected.
    fn ask(
        &self,
        owner: usize,
        span: ByteRange,
        check: &CancelCheck<'_>,
    ) -> Result<Option<OpenResponse>, FetchError> {
        let ByteRange { from, to } = span;
        let range = Some((from, (to < self.known.size).then_some(to)));
        let (known, is_conditional) = (Some(self.known), self.is_conditional);
        let is_vouched = !self.options.expected.is_empty();
        let asked = FileRequest { range, known, is_conditional, is_vouched };
        let (connection, head, _) = ask(self.target, &asked, self.options, check)?;
        if let RangeOutcome::Piece { to, .. } = classify_response(&asked, &head)? {
            self.state().spans.confirm(owner);
            let span = ByteRange { from, to };
            return Ok(Some(OpenResponse { connection, head, span }));
        }
        self.state().is_upset = true;
        Ok(None)
    }
}

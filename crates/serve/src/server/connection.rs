//! The state machine of one connection: reads requests and sends answers, in order, without blocking.

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::BorrowedFd,
    sync::atomic::Ordering,
    time::{Duration, Instant, SystemTime},
};

use rustix::event::epoll::EventFlags;
use thalweg_core::{cadence::GRACE, rate_limit::RateLimit};
use thalweg_sys::Errno;

use super::{
    answer::{PreparedAnswer, answer, refuse},
    answering::{Answering, ConnectionPhase, NextAction, RequestRetry, account},
    ends::ConnectionEnds,
    held_answers::HeldAnswers,
    limits::ConnectionLimits,
    log::{LogEntry, date},
    options::Timeouts,
    readahead::Disks,
    sending::{SendContext, Sending, Sent},
    short::Short,
    tools::Tools,
};
use crate::http::{head::RequestHead, input::RequestBuffer, status::HttpStatus};

mod waiting;

/// A connection to a client.
pub struct ServeConnection {
    ends: ConnectionEnds,
    client: Option<SocketAddr>,
    input: RequestBuffer,
    phase: ConnectionPhase,
    /// `true` from an event until a read finds the socket empty, or a write finds it full.
    readable: bool,
    writable: bool,
    /// `true` if the client has closed its sending side. Buffered data may still be readable.
    has_hung_up: bool,
    /// `true` if the client does not read any more either.
    is_gone: bool,
    /// `true` if the kernel may hold back the last segment (`MSG_MORE`), for at most 200 ms.
    is_held_back: bool,
    /// On a byte stream: answers that are not written yet.
    held: Option<Box<HeldAnswers>>,
    since: Instant,
    /// Bytes in the send buffer when the client seemed to read nothing. `None` while the socket accepts bytes.
    unread: Option<u32>,
    /// Rate limit of this connection. Boxed, because few connections have one.
    limit: Option<Box<RateLimit>>,
}

// Maximum number of phase steps before the other connections have their turn.
const TURN: usize = 16;
/// Maximum number of bytes that one step sends, so that one connection does not delay the others.
const STEP: u64 = 1 << 20;
/// Maximum time that a client may request to wait for a hash.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// Attempts if a file changes repeatedly. Fewer than `cadence::ATTEMPTS`, because each one reads the file.
const MOST_READS: usize = 3;

impl ServeConnection {
    /// Creates the state of a connection that was just accepted.
    pub fn new(ends: ConnectionEnds, client: Option<SocketAddr>, limit: Option<u64>) -> Self {
        let held = ends.is_stream.then(Box::default);
        Self {
            ends,
            client,
            input: RequestBuffer::default(),
            phase: ConnectionPhase::Waiting,
            readable: true,
            writable: true,
            has_hung_up: false,
            is_gone: false,
            is_held_back: false,
            held,
            since: Instant::now(),
            unread: None,
            limit: limit.map(|limit| Box::new(RateLimit::new(limit))),
        }
    }

    /// Returns the descriptors that epoll has to watch.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.ends.descriptors()
    }

    /// Records the events that epoll reported.
    pub fn ready(&mut self, flags: EventFlags) {
        let is_hangup = flags.contains(EventFlags::HUP);
        self.is_gone |=
            flags.contains(EventFlags::ERR) || is_hangup && self.ends.hang_up_together();
        self.has_hung_up |= self.is_gone || is_hangup || flags.contains(EventFlags::RDHUP);
        self.readable |= flags.contains(EventFlags::IN) || self.has_hung_up;
        self.writable |= flags.contains(EventFlags::OUT) || self.is_gone;
    }

    /// Makes as much progress as possible without blocking.
    pub fn advance(&mut self, tools: &mut Tools) -> NextAction {
        for _ in 0..TURN {
            let next = match self.phase {
                ConnectionPhase::Waiting => self.listen(tools),
                ConnectionPhase::Answering(_) => self.send(tools),
                ConnectionPhase::Parting => self.part(tools),
            };
            if let Some(next) = next {
                return next;
            }
        }
        NextAction::Go
    }

    /// Returns the address of the client, or `None` on a Unix socket.
    pub fn client(&self) -> Option<IpAddr> {
        self.client.map(|client| client.ip().to_canonical())
    }

    /// Checks the timeouts. If the client has not read for a second, the memory of its answer is released.
    pub fn tick(&mut self, tools: &mut Tools, timeouts: &Timeouts) -> NextAction {
        if self.is_pending() {
            // The server is waiting for a disk or a hash, so the client's timeout restarts.
            self.since = Instant::now();
            if self.waits_too_long_for_digest(timeouts) {
                self.answer_without_digest(tools);
                return NextAction::Go;
            }
        }
        let waited = self.since.elapsed();
        let is_late = match &mut self.phase {
            ConnectionPhase::Waiting if self.input.is_untouched() => waited >= timeouts.idle,
            ConnectionPhase::Waiting if waited >= timeouts.head => {
                let request = self.input.give_up();
                self.begin(refuse(HttpStatus::TIMEOUT), request);
                return NextAction::Go;
            }
            ConnectionPhase::Waiting => false,
            ConnectionPhase::Answering(_) => waited >= timeouts.stalled,
            // This limit is fixed, unlike the others, because the kernel already has all bytes.
            ConnectionPhase::Parting => waited >= GRACE,
        };
        if is_late && !self.has_read_meanwhile() {
            self.abandon(tools, "timeout: the client read nothing");
            return NextAction::Close;
        }
        if waited >= Duration::from_secs(1) {
            self.park(tools);
            self.note_unread();
        }
        NextAction::Wait
    }

    /// Returns `true` if an answer has waited long enough for a hash: as long as the client allows (at most an hour),
    /// or else `timeouts.digest`.
    fn waits_too_long_for_digest(&self, timeouts: &Timeouts) -> bool {
        let ConnectionPhase::Answering(answering) = &self.phase else { return false };
        let wish = answering.retry.as_ref().and_then(|retry| retry.head.wait);
        let wish = wish.map(|wish| wish.min(LONGEST_WAIT));
        answering.sending.waits_for_digest()
            && answering.began.elapsed() >= wish.unwrap_or(timeouts.digest)
    }

    fn answer_without_digest(&mut self, tools: &mut Tools) {
        let ConnectionPhase::Answering(answering) = &mut self.phase else { return };
        let is_there = !self.has_hung_up;
        answering.sending.leave_digest(is_there);
        let Some(retry) = answering.retry.take() else { return };
        let RequestRetry { mut head, left } = *retry;
        head.without_digest = true;
        self.respond(tools, head, left.max(1));
        self.note("the digest was not ready in time".to_owned());
    }

    fn is_pending(&self) -> bool {
        matches!(&self.phase, ConnectionPhase::Answering(answering) if answering.sending.is_pending())
    }

    /// Returns the time for which the connection has had no complete request or has been closing.
    pub fn without_request(&self) -> Option<Duration> {
        match self.phase {
            ConnectionPhase::Waiting | ConnectionPhase::Parting => Some(self.since.elapsed()),
            ConnectionPhase::Answering(_) => None,
        }
    }

    /// Returns `true` if no request and no answer is in progress.
    pub fn is_idle(&self) -> bool {
        matches!(self.phase, ConnectionPhase::Waiting) && self.input.is_empty()
    }

    /// Ends an unfinished answer.
    pub fn abandon(&mut self, tools: &mut Tools, why: &str) {
        if matches!(self.phase, ConnectionPhase::Answering(_)) {
            self.cut_short(tools, why.to_owned());
        }
    }

    /// Reads until a request is complete.
    fn listen(&mut self, tools: &mut Tools) -> Option<NextAction> {
        let request = self.input.take();
        if request.is_none() {
            match self.uncork() {
                Ok(()) => {}
                Err(Errno::AGAIN) => {
                    self.writable = false;
                    return Some(NextAction::Wait);
                }
                Err(_) => return Some(NextAction::Close),
            }
        }
        match request {
            Some(Ok(head)) => self.respond(tools, head, MOST_READS),
            Some(Err(status)) => {
                let request = self.input.give_up();
                tools.site.stream_reports.note_noise(&request);
                self.begin(refuse(status), request);
            }
            None if tools.is_ending && self.input.is_empty() => return Some(NextAction::Close),
            None if !self.readable => return Some(NextAction::Wait),
            None => {
                let was_untouched = self.input.is_untouched();
                match self.read(tools) {
                    Ok(0) => return Some(NextAction::Close),
                    Ok(count) => {
                        if was_untouched {
                            self.since = Instant::now();
                        }
                        self.input.feed(&tools.buffer[..count]);
                    }
                    Err(Errno::AGAIN) => return Some(NextAction::Wait),
                    Err(_) => return Some(NextAction::Close),
                }
            }
        }
        None
    }

    /// Reads once. If the read returns fewer bytes than requested, the socket is empty, and epoll reports later data.
    fn read(&mut self, tools: &mut Tools) -> Result<usize, Errno> {
        match self.ends.read(&mut tools.buffer) {
            Ok(count) => {
                self.readable = count == tools.buffer.len() || self.has_hung_up;
                Ok(count)
            }
            Err(Errno::AGAIN) => {
                self.readable = false;
                Err(Errno::AGAIN)
            }
            Err(errno) => Err(errno),
        }
    }

    /// Answers with the current version of the file. If the file changes while it is read into memory, retries.
    fn respond(&mut self, tools: &mut Tools, head: RequestHead, tries: usize) {
        for left in (0..tries).rev() {
            let made = answer(&tools.site, &tools.store, &head, !tools.is_ending);
            let PreparedAnswer { status, head: bytes, body, keep_alive, waits } = made;
            if let Some(what) = waits {
                let (helpers, waiter) = (&tools.readahead.helpers, tools.readahead.waiter());
                let digests = tools.site.digests.as_ref();
                let wait = digests.map(|digests| digests.ask_for(what, helpers, waiter));
                let sending = wait.map(Sending::waiting).unwrap_or_default();
                let retry = RequestRetry { head, left };
                return self.answering_later(sending, status, keep_alive, retry);
            }
            let buffer = tools.store.get_mut().buffer();
            match Sending::prepare(&bytes, body, buffer, &mut tools.readahead.disks) {
                Ok(sending) if sending.is_pending() => {
                    let retry = RequestRetry { head, left };
                    return self.answering_later(sending, status, keep_alive, retry);
                }
                Ok(sending) => return self.answering(sending, status, keep_alive, head.line),
                Err(Short::Changed) => {}
                Err(short) => {
                    self.begin(refuse(HttpStatus::ERROR), head.line);
                    self.note(short.words());
                    return;
                }
            }
        }
        tools.site.accounts.changed.fetch_add(1, Ordering::Relaxed);
        self.begin(refuse(HttpStatus::UNAVAILABLE), head.line);
        self.note("file changed".to_owned());
    }

    /// Starts an answer that waits for a disk or a hash.
    fn answering_later(
        &mut self,
        sending: Sending,
        status: HttpStatus,
        keep_alive: bool,
        retry: RequestRetry,
    ) {
        self.answering(sending, status, keep_alive, retry.head.line.clone());
        if let ConnectionPhase::Answering(answering) = &mut self.phase {
            answering.retry = Some(Box::new(retry));
        }
    }

    /// Starts an answer without a file.
    fn begin(&mut self, made: PreparedAnswer, request: String) {
        let PreparedAnswer { status, head, body, keep_alive, .. } = made;
        let sending = Sending::prepare(&head, body, Vec::new(), &mut Disks::default());
        self.answering(sending.unwrap_or_default(), status, keep_alive, request);
    }

    fn answering(
        &mut self,
        sending: Sending,
        status: HttpStatus,
        keep_alive: bool,
        request: String,
    ) {
        self.since = Instant::now();
        let answering = Answering::new(sending, status, keep_alive, request);
        self.phase = ConnectionPhase::Answering(Box::new(answering));
    }

    fn note(&mut self, note: String) {
        if let ConnectionPhase::Answering(answering) = &mut self.phase {
            answering.notes.push(note);
        }
    }

    fn send(&mut self, tools: &mut Tools) -> Option<NextAction> {
        let ConnectionPhase::Answering(answering) = &mut self.phase else { return None };
        if !self.writable {
            return Some(NextAction::Wait);
        }
        if self.has_hung_up && answering.sending.waits_for_digest() {
            // `EPOLLRDHUP` may mean a closed connection, or only a closed sending side. The server hashes no file for a
            // client that may have disconnected.
            self.answer_without_digest(tools);
            return None;
        }
        if self.is_gone && answering.sending.is_pending() {
            // The client has disconnected, so the result of the disk read is not needed.
            self.cut_short(tools, "client disconnected".to_owned());
            return Some(NextAction::Close);
        }
        let limits =
            ConnectionLimits { of_all: tools.site.limit.as_ref(), own: self.limit.as_deref() };
        if !limits.are_open() {
            // A rate limit delays the answer, not the client, so the client's timeout restarts.
            self.since = Instant::now();
            let _ = self.uncork();
            return Some(NextAction::Later);
        }
        let before = answering.sending.total;
        let more = answering.keep_alive && !self.input.is_empty();
        let Answering { sending, mechanism, notes, .. } = &mut **answering;
        let sent = sending.advance(&mut SendContext {
            socket: &self.ends.socket,
            sink: self.ends.sink,
            plans: &mut tools.plans,
            policy: &tools.policy,
            held: self.held.as_deref_mut(),
            step: limits.step(STEP),
            more,
            readahead: &mut tools.readahead,
            account: &mut |report| account(&tools.site, mechanism, notes, report),
        });
        let moved = answering.sending.total - before;
        limits.spend(moved);
        self.is_held_back |= more;
        if answering.sending.total > 0 {
            answering.retry = None;
        }
        if moved > 0 {
            (self.since, self.unread) = (Instant::now(), None);
        }
        self.after_step(tools, sent)
    }

    /// Decides what follows a step of sending.
    fn after_step(&mut self, tools: &mut Tools, sent: Result<Sent, Short>) -> Option<NextAction> {
        let ConnectionPhase::Answering(answering) = &mut self.phase else { return None };
        match sent {
            Ok(Sent::All) => {
                let keep_alive = answering.keep_alive;
                self.report(tools);
                let phase = std::mem::replace(&mut self.phase, ConnectionPhase::Waiting);
                if let ConnectionPhase::Answering(answering) = phase {
                    tools.store.get_mut().give(answering.sending.buffer());
                }
                if !keep_alive {
                    self.ends.finish();
                    self.phase = ConnectionPhase::Parting;
                }
                None
            }
            Ok(Sent::Some) => Some(NextAction::Go),
            Ok(Sent::Blocked) => {
                self.writable = false;
                if let Some(buffer) = answering.sending.shrink() {
                    tools.store.get_mut().give(buffer);
                }
                Some(NextAction::Wait)
            }
            Ok(Sent::Pending) => {
                // Flush: the head and earlier answers need not wait for the body.
                self.is_held_back = true;
                let _ = self.uncork();
                Some(NextAction::Wait)
            }
            Err(short) if answering.sending.total == 0 && answering.retry.is_some() => {
                self.answer_again(tools, &short);
                None
            }
            Err(short) => {
                if matches!(short, Short::Changed) {
                    tools.site.accounts.changed.fetch_add(1, Ordering::Relaxed);
                }
                self.cut_short(tools, short.words());
                Some(NextAction::Close)
            }
        }
    }

    /// Sends the bytes that are held back. Fails with `EAGAIN` if a byte stream is full.
    fn uncork(&mut self) -> Result<(), Errno> {
        let is_held_back = std::mem::take(&mut self.is_held_back);
        match &mut self.held {
            Some(held) => return held.write(&*self.ends.socket),
            None if is_held_back => self.ends.flush(),
            None => {}
        }
        Ok(())
    }

    /// Answers again if a file changed while the answer waited for a disk. This is possible because no byte was sent.
    fn answer_again(&mut self, tools: &mut Tools, short: &Short) {
        let ConnectionPhase::Answering(answering) = &mut self.phase else { return };
        let Some(retry) = answering.retry.take() else { return };
        let RequestRetry { head, left } = *retry;
        if matches!(short, Short::Changed | Short::Again) {
            return self.respond(tools, head, left);
        }
        self.begin(refuse(HttpStatus::ERROR), head.line);
        self.note(short.words());
    }

    /// Ends an answer before its last byte, in a manner that the client recognizes as incomplete.
    fn cut_short(&mut self, tools: &mut Tools, why: String) {
        if let ConnectionPhase::Answering(answering) = &mut self.phase {
            let Answering { sending, mechanism, notes, .. } = &mut **answering;
            sending.park(&mut |report| account(&tools.site, mechanism, notes, report));
            notes.push(why);
        }
        self.report(tools);
        self.phase = ConnectionPhase::Parting;
        self.is_held_back = true;
        let _ = self.uncork();
        self.ends.reset_at_close();
    }

    /// Discards further input until the client closes its side.
    fn part(&mut self, tools: &mut Tools) -> Option<NextAction> {
        if !self.readable {
            return Some(NextAction::Wait);
        }
        match self.read(tools) {
            Err(Errno::AGAIN) => Some(NextAction::Wait),
            Ok(0) | Err(_) => Some(NextAction::Close),
            Ok(_) => None,
        }
    }

    fn report(&mut self, tools: &mut Tools) {
        let ConnectionPhase::Answering(answering) = &mut self.phase else { return };
        let bytes = answering.sending.total;
        tools.site.accounts.answered(answering.status.0, bytes);
        if let Some(log_queue) = &tools.log_queue {
            log_queue.report(LogEntry {
                time: date(SystemTime::now()),
                client: self.client,
                request: std::mem::take(&mut answering.request),
                status: answering.status.0,
                bytes,
                seconds: answering.began.elapsed().as_secs_f64(),
                mechanism: answering.mechanism.map(|(name, _)| name),
                notes: std::mem::take(&mut answering.notes),
            });
        }
    }
}

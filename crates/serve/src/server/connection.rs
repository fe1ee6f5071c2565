//! One connection: requests in, answers out, in order, without ever waiting.

use std::{
    net::SocketAddr,
    os::fd::OwnedFd,
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant, SystemTime},
};

use rustix::net::{Shutdown, shutdown, sockopt::set_socket_linger};
use thalweg_core::Report;
use thalweg_sys::{Errno, io};

use super::{
    answer::{Answer, answer, refuse},
    log::{Entry, Teller, date},
    options::Timeouts,
    plans::Plans,
    sending::{Sending, Sent, Short, Way},
    site::Site,
};
use crate::http::{head::Head, input::Input, status::Status};

/// What the connections of one worker share.
pub struct Tools {
    pub site: Arc<Site>,
    pub plans: Plans,
    pub teller: Option<Teller>,
    /// What was read last.
    pub buffer: Vec<u8>,
    /// The server is about to end: no connection is kept.
    pub is_ending: bool,
}

/// A client.
pub struct Connection {
    socket: Rc<OwnedFd>,
    client: Option<SocketAddr>,
    input: Input,
    phase: Phase,
    /// Something may be read, or written, unless a call has said otherwise since.
    readable: bool,
    writable: bool,
    /// The client will send no more: its end is there to be read.
    has_hung_up: bool,
    since: Instant,
}

enum Phase {
    /// For a request.
    Waiting,
    Answering(Box<Answering>),
    /// All is said, and what the client still sends is thrown away: closed at once, the kernel would tell it
    /// so before it has read the answer.
    Parting,
}

struct Answering {
    sending: Sending,
    status: Status,
    keep_alive: bool,
    request: String,
    began: Instant,
    mechanism: Option<(&'static str, u64)>,
    notes: Vec<String>,
}

/// What a connection wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing, until its socket is ready.
    Wait,
    /// To go on, once the others had their turn.
    Go,
    /// To go on in a moment: all answers together have sent more than they may.
    Later,
    /// To be closed.
    Close,
}

// Answers before the others have their turn.
const TURN: usize = 16;
/// The most that one step moves, so that one connection does not keep the others waiting.
const STEP: u64 = 1 << 20;
/// How long a client may take to read the last answer.
const PARTING: Duration = Duration::from_secs(2);
// Tries to answer with a file that changes again and again.
const TRIES: usize = 3;

impl Connection {
    /// One that was just accepted.
    pub fn new(socket: OwnedFd, client: Option<SocketAddr>) -> Self {
        Self {
            socket: Rc::new(socket),
            client,
            input: Input::default(),
            phase: Phase::Waiting,
            readable: true,
            writable: true,
            has_hung_up: false,
            since: Instant::now(),
        }
    }

    /// The kernel says what can be done.
    pub fn ready(&mut self, readable: bool, writable: bool, has_hung_up: bool) {
        self.readable |= readable | has_hung_up;
        self.writable |= writable;
        self.has_hung_up |= has_hung_up;
    }

    /// Goes as far as it can without waiting.
    pub fn advance(&mut self, tools: &mut Tools) -> Next {
        for _ in 0..TURN {
            let next = match self.phase {
                Phase::Waiting => self.listen(tools),
                Phase::Answering(_) => self.send(tools),
                Phase::Parting => self.part(tools),
            };
            if let Some(next) = next {
                return next;
            }
        }
        Next::Go
    }

    /// Looks at the clock: whether the client has had its time. What waits for it gives back its memory.
    pub fn tick(&mut self, tools: &mut Tools, timeouts: &Timeouts) -> Next {
        let waited = self.since.elapsed();
        let is_late = match &mut self.phase {
            Phase::Waiting if self.input.is_empty() => waited >= timeouts.idle,
            Phase::Waiting if waited >= timeouts.head => {
                self.begin(refuse(Status::TIMEOUT), String::new());
                return Next::Go;
            }
            Phase::Waiting => false,
            Phase::Answering(_) => waited >= timeouts.stalled,
            Phase::Parting => waited >= PARTING,
        };
        if is_late {
            self.abandon(tools, "the client took nothing for too long");
            return Next::Close;
        }
        if let Phase::Answering(answering) = &mut self.phase
            && waited >= Duration::from_secs(1)
        {
            let Answering { sending, mechanism, notes, .. } = &mut **answering;
            sending.park(&mut |report| account(&tools.site, mechanism, notes, report));
        }
        Next::Wait
    }

    /// Whether nothing is under way on it.
    pub fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Waiting) && self.input.is_empty()
    }

    /// Ends an answer that is under way.
    pub fn abandon(&mut self, tools: &mut Tools, why: &str) {
        if matches!(self.phase, Phase::Answering(_)) {
            self.cut_short(tools, why.to_owned());
        }
    }

    /// Reads until there is a request.
    fn listen(&mut self, tools: &mut Tools) -> Option<Next> {
        match self.input.take() {
            Some(Ok(head)) => self.respond(tools, &head),
            Some(Err(status)) => self.begin(refuse(status), String::new()),
            None if tools.is_ending && self.input.is_empty() => return Some(Next::Close),
            None if !self.readable => return Some(Next::Wait),
            None => {
                let was_empty = self.input.is_empty();
                match self.read(tools) {
                    Ok(0) => return Some(Next::Close),
                    Ok(count) => {
                        if was_empty {
                            self.since = Instant::now();
                        }
                        self.input.feed(&tools.buffer[..count]);
                    }
                    Err(Errno::AGAIN) => return Some(Next::Wait),
                    Err(_) => return Some(Next::Close),
                }
            }
        }
        None
    }

    /// One read. Less than there was room for is all there is: the kernel tells of more.
    fn read(&mut self, tools: &mut Tools) -> Result<usize, Errno> {
        loop {
            return match io::read(&*self.socket, &mut tools.buffer) {
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => {
                    self.readable = false;
                    Err(Errno::AGAIN)
                }
                Ok(count) => {
                    self.readable = count == tools.buffer.len() || self.has_hung_up;
                    Ok(count)
                }
                Err(errno) => Err(errno),
            };
        }
    }

    /// Answers, from the file as it is; if it changes while it is read into memory, once more.
    fn respond(&mut self, tools: &mut Tools, head: &Head) {
        for _ in 0..TRIES {
            let made = answer(&tools.site, head, !tools.is_ending);
            let Answer { status, head: bytes, body, keep_alive } = made;
            match Sending::prepare(bytes, body) {
                Ok(sending) => {
                    self.answering(sending, status, keep_alive, head.line.clone());
                    return;
                }
                Err(Short::Changed) => {}
                Err(short) => {
                    self.begin(refuse(Status::ERROR), head.line.clone());
                    self.note(words(&short));
                    return;
                }
            }
        }
        tools.site.accounts.changed.fetch_add(1, Ordering::Relaxed);
        self.begin(refuse(Status::UNAVAILABLE), head.line.clone());
        self.note("changed".to_owned());
    }

    /// Begins an answer without a file.
    fn begin(&mut self, made: Answer, request: String) {
        let Answer { status, head, body, keep_alive } = made;
        let sending = Sending::prepare(head, body).unwrap_or_default();
        self.answering(sending, status, keep_alive, request);
    }

    fn answering(&mut self, sending: Sending, status: Status, keep_alive: bool, request: String) {
        self.since = Instant::now();
        let began = self.since;
        let (mechanism, notes) = (None, Vec::new());
        let answering = Answering { sending, status, keep_alive, request, began, mechanism, notes };
        self.phase = Phase::Answering(Box::new(answering));
    }

    fn note(&mut self, note: String) {
        if let Phase::Answering(answering) = &mut self.phase {
            answering.notes.push(note);
        }
    }

    fn send(&mut self, tools: &mut Tools) -> Option<Next> {
        let Phase::Answering(answering) = &mut self.phase else { return None };
        if !self.writable {
            return Some(Next::Wait);
        }
        let limit = tools.site.limit.as_ref();
        if limit.is_some_and(|limit| !limit.is_open()) {
            // It is not the client that keeps us waiting.
            self.since = Instant::now();
            return Some(Next::Later);
        }
        let before = answering.sending.total;
        let Answering { sending, mechanism, notes, .. } = &mut **answering;
        let sent = sending.advance(&mut Way {
            socket: &self.socket,
            is_internet: self.client.is_some(),
            plans: &mut tools.plans,
            policy: &tools.site.policy,
            step: limit.map_or(STEP, |limit| limit.step().min(STEP)),
            account: &mut |report| account(&tools.site, mechanism, notes, report),
        });
        let moved = answering.sending.total - before;
        if let Some(limit) = limit {
            limit.spend(moved);
        }
        if moved > 0 {
            self.since = Instant::now();
        }
        match sent {
            Ok(Sent::All) => {
                let keep_alive = answering.keep_alive;
                self.tell(tools);
                self.phase = Phase::Waiting;
                if !keep_alive {
                    // It fails where the client is gone, which the next read says too.
                    let _ = shutdown(&*self.socket, Shutdown::Write);
                    self.phase = Phase::Parting;
                }
                None
            }
            Ok(Sent::Some) => Some(Next::Go),
            Ok(Sent::Blocked) => {
                self.writable = false;
                Some(Next::Wait)
            }
            Err(short) => {
                if matches!(short, Short::Changed) {
                    tools.site.accounts.changed.fetch_add(1, Ordering::Relaxed);
                }
                self.cut_short(tools, words(&short));
                Some(Next::Close)
            }
        }
    }

    /// Ends an answer before its last byte, so that nobody takes it for whole.
    fn cut_short(&mut self, tools: &mut Tools, why: String) {
        if let Phase::Answering(answering) = &mut self.phase {
            let Answering { sending, mechanism, notes, .. } = &mut **answering;
            sending.park(&mut |report| account(&tools.site, mechanism, notes, report));
            notes.push(why);
        }
        self.tell(tools);
        self.phase = Phase::Parting;
        // A reset; a unix socket has none, and there the length says it.
        let _ = set_socket_linger(&*self.socket, Some(Duration::ZERO));
    }

    /// Throws away what the client still sends, until it has nothing more to say.
    fn part(&mut self, tools: &mut Tools) -> Option<Next> {
        if !self.readable {
            return Some(Next::Wait);
        }
        match self.read(tools) {
            Err(Errno::AGAIN) => Some(Next::Wait),
            Ok(0) | Err(_) => Some(Next::Close),
            Ok(_) => None,
        }
    }

    fn tell(&mut self, tools: &mut Tools) {
        let Phase::Answering(answering) = &mut self.phase else { return };
        let bytes = answering.sending.total;
        tools.site.accounts.answered(answering.status.0, bytes);
        if let Some(teller) = &tools.teller {
            teller.tell(Entry {
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

/// Takes down what a transfer did.
fn account(
    site: &Site,
    mechanism: &mut Option<(&'static str, u64)>,
    notes: &mut Vec<String>,
    report: &Report,
) {
    site.accounts.moved(report);
    if let Some(main) = report.main()
        && mechanism.is_none_or(|(_, bytes)| bytes < main.bytes)
    {
        *mechanism = Some((main.mechanism, main.bytes));
    }
    for step in &report.steps_down {
        notes
            .push(format!("{} -> {} after {} bytes: {}", step.from, step.to, step.at, step.reason));
    }
}

fn words(short: &Short) -> String {
    let errno = |errno: Errno| std::io::Error::from(errno);
    match short {
        Short::Changed => "changed".to_owned(),
        Short::Client(error) => format!("the client is gone: {}", errno(*error)),
        Short::File(error) => format!("cannot read the file: {}", errno(*error)),
        Short::Supply(error) => error.clone(),
    }
}

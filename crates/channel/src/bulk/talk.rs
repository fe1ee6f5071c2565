//! The conversation of two ends about their transfers: short notes through a shared page, or over
//! the link where there is no shared memory; and every wait, which ends when the peer does.

use super::life::{Life, PeersSign, Sign};
use super::packet::{Kind, LONGEST, Packet};
use super::page::{Event, PAGE, Page};
use crate::error::Error;
use crate::link::Link;
use crate::wait::spin::{Spinner, Turn, is_alone_with};
use crate::wait::{DOUBT, Wait};
use rustix::event::PollFlags;
use rustix::fd::{BorrowedFd, OwnedFd};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use thalweg_core::Unfit;
use thalweg_sys::fork::Mark;
use thalweg_sys::{Errno, futex};

/// How long a sleep may last where the peer's death does not end it: on a kernel without
/// `futex_waitv`, under a filter, with a peer that has no sign of life.
const LOOK: Duration = Duration::from_millis(4);
/// How long, where the caller has to be asked now and then.
pub(crate) const ASK: Duration = Duration::from_millis(50);

/// Words of a note: its kind and five more.
pub(crate) const NOTE: usize = 6;
/// Notes that may lie unread in one direction. A transfer needs three at the most.
const UNREAD: u32 = 8;
/// Bytes between the notes of a page, and where the first lies behind the words of its side.
const APART: usize = 64;
const FIRST: usize = 256;
/// Where each side's part of the page begins.
const SIDES: [usize; 2] = [0, PAGE / 2];

/// What a note says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Say {
    /// Sender: a buffer begins; word 1 is its length, the rest is the arm's.
    Begin = 1,
    /// Receiver: here is where it goes, for arms that need to know.
    Ready = 2,
    /// Sender: my part is done.
    Finished = 3,
    /// Receiver: all of it is here.
    Done = 4,
    /// Receiver: I cannot take it this way; word 1 is the errno.
    Refused = 5,
    /// Sender: another arm follows over the link.
    StepDown = 6,
    /// Sender: no more buffers.
    Bye = 7,
}

impl Say {
    const ALL: [Self; 7] = [
        Self::Begin,
        Self::Ready,
        Self::Finished,
        Self::Done,
        Self::Refused,
        Self::StepDown,
        Self::Bye,
    ];
}

/// A note, with its words behind the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub say: Say,
    pub words: [u64; NOTE - 1],
}

impl Note {
    pub fn new(say: Say, words: &[u64]) -> Self {
        let mut all = [0; NOTE - 1];
        all[..words.len()].copy_from_slice(words);
        Self { say, words: all }
    }

    fn parse(words: &[u64]) -> Result<Self, Stop> {
        let say = Say::ALL.into_iter().find(|say| words.first() == Some(&(*say as u64)));
        let say = say.ok_or_else(|| Stop::Corrupt("an unknown note".to_owned()))?;
        Ok(Self::new(say, words.get(1..NOTE).unwrap_or_default()))
    }
}

/// Why a step of a transfer did not happen.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The peer is gone.
    Died,
    /// The caller wants no more of it.
    Interrupted,
    /// The caller's deadline passed.
    Late,
    /// This way does not work here, or for this buffer; another may.
    Refused(Unfit),
    /// The peer does not keep to the protocol.
    Corrupt(String),
}

impl Stop {
    /// A refused call.
    pub fn refused(call: &'static str, errno: Errno) -> Self {
        Self::Refused(unfit(call, errno))
    }

    /// A refusal that the peer tells of. Its errno may be any number, and not all are one.
    pub fn told(what: &'static str, errno: u64) -> Self {
        match i32::try_from(errno) {
            Ok(errno @ 1..4096) => Self::refused(what, Errno::from_raw_os_error(errno)),
            _ => Self::Refused(Unfit::because(what)),
        }
    }
}

/// A refused call as an answer.
pub(crate) fn unfit(call: &str, errno: Errno) -> Unfit {
    let reason = format!("{call}: {}", thalweg_core::error::errno_name(errno));
    Unfit { reason, errno: Some(errno) }
}

enum Door {
    Page { page: Page, near: usize, far: usize, told: u32, heard: u32 },
    Link,
}

/// One side's end of the conversation.
pub(crate) struct Talk {
    pub link: Link,
    door: Door,
    /// Notes that came while something else was waited for, with descriptors.
    waiting: VecDeque<(Packet, Vec<OwnedFd>)>,
    wait: Wait,
    /// We and the peer have one processor between us.
    alone: bool,
    stop: Option<fn() -> bool>,
    /// When the call under way is to end.
    deadline: Option<Instant>,
    /// Ours, which the peer sleeps on.
    sign: Option<Sign>,
    peers_sign: Option<PeersSign>,
    mark: Mark,
}

impl Talk {
    pub fn new(link: Link, wait: Wait, stop: Option<fn() -> bool>) -> Self {
        let alone = is_alone_with(link.peer());
        Self {
            link,
            door: Door::Link,
            waiting: VecDeque::new(),
            wait,
            alone,
            stop,
            deadline: None,
            sign: None,
            peers_sign: None,
            mark: Mark::here(),
        }
    }

    /// From now on everything ends at this moment; `None` is never.
    pub fn until(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    /// Whether the call under way has an end.
    pub fn is_timed(&self) -> bool {
        self.deadline.is_some()
    }

    /// Keeps the sign of life that the peer was shown.
    pub fn show(&mut self, sign: Sign) {
        self.sign = Some(sign);
    }

    /// From now on sleeps end with the peer's life. [`Unfit`] where they cannot: then the peer is
    /// looked at every few milliseconds.
    pub fn watch(&mut self, sign: Option<OwnedFd>) -> Result<(), Unfit> {
        if !futex::can_wait_any() {
            return Err(Unfit::because("futex_waitv is not to be had"));
        }
        let sign = sign.ok_or_else(|| Unfit::because("the peer shows none"))?;
        self.peers_sign = Some(PeersSign::adopt(sign)?);
        Ok(())
    }

    /// Whether this is still the process that opened it: a child shares the memory, and what it
    /// says there would be taken for its parent's.
    pub fn check_here(&self) -> Result<(), Error> {
        if self.mark.is_here() {
            return Ok(());
        }
        Err(Error::Forked { owner: self.mark.process() })
    }

    /// From now on notes go through this page. `side` 0 made it, 1 adopted it.
    pub fn through(&mut self, page: Page, side: usize) {
        let (near, far) = (SIDES[side & 1], SIDES[1 - (side & 1)]);
        self.door = Door::Page { page, near, far, told: 0, heard: 0 };
    }

    /// Tells the other side.
    pub fn tell(&mut self, note: Note) -> Result<(), Stop> {
        let mut words = [note.say as u64; NOTE];
        words[1..].copy_from_slice(&note.words);
        let Door::Page { page, near, told, .. } = &mut self.door else {
            return self.send(&Packet::new(Kind::Note).words(&words), &[]);
        };
        let at = *near + FIRST + (*told % UNREAD) as usize * APART;
        for (n, word) in words.into_iter().enumerate() {
            page.u64(at + n * 8).store(word, Ordering::Relaxed);
        }
        *told = told.wrapping_add(1);
        // PAIRS WITH: the load in `note_in`: the words are there before the count says so.
        page.u32(*near + 128).store(*told, Ordering::Release);
        page.event(*near).notify();
        Ok(())
    }

    /// Waits for the next note of the other side.
    pub fn hear(&mut self) -> Result<Note, Stop> {
        if let Door::Page { page, far, heard, .. } = &self.door {
            let (page, far, heard) = (page, *far, *heard);
            let note = self.wait(page.event(far), || note_in(page, far, heard))??;
            if let Door::Page { heard, .. } = &mut self.door {
                *heard = heard.wrapping_add(1);
            }
            return Ok(note);
        }
        loop {
            let (packet, fds) = self.receive()?;
            if packet.kind == Kind::Note {
                return Note::parse(&packet.words);
            }
            if self.waiting.len() > UNREAD as usize {
                return Err(Stop::Corrupt("packets that nobody asked for".to_owned()));
            }
            self.waiting.push_back((packet, fds));
        }
    }

    /// Hears a note that must be `say`; a refusal by the other side is an answer.
    pub fn expect(&mut self, say: Say) -> Result<Note, Stop> {
        let note = self.hear()?;
        match note.say {
            heard if heard == say => Ok(note),
            Say::Refused => Err(Stop::told("refused by the receiver", note.words[0])),
            other => Err(Stop::Corrupt(format!("{other:?} where {say:?} was due"))),
        }
    }

    /// Sends a packet over the link.
    pub fn send(&self, packet: &Packet, fds: &[BorrowedFd<'_>]) -> Result<(), Stop> {
        let bytes = packet.to_bytes();
        loop {
            match self.link.send_until(&bytes, fds, Some(Instant::now())) {
                Ok(()) => return Ok(()),
                Err(Error::Timeout) => {}
                Err(error) => return Err(stop_of(error)),
            }
            self.check()?;
            self.link.await_room(Some(self.longest(DOUBT))).map_err(stop_of)?;
        }
    }

    /// The next packet that is not a note.
    pub fn packet(&mut self) -> Result<(Packet, Vec<OwnedFd>), Stop> {
        if let Some(first) = self.waiting.pop_front() {
            return Ok(first);
        }
        loop {
            let got = self.receive()?;
            if got.0.kind != Kind::Note {
                return Ok(got);
            }
            // A peer that never stops talking does not keep us from ending.
            self.wanted()?;
        }
    }

    fn receive(&self) -> Result<(Packet, Vec<OwnedFd>), Stop> {
        let mut bytes = vec![0; LONGEST];
        let mut ended = None;
        loop {
            match self.link.receive_until(&mut bytes, Some(Instant::now())) {
                Ok((len, fds)) => {
                    let packet = Packet::parse(&bytes[..len]).map_err(stop_of)?;
                    return Ok((packet, fds));
                }
                Err(Error::Timeout) => {}
                Err(error) => return Err(stop_of(error)),
            }
            if let Some(stop) = ended {
                return Err(stop);
            }
            match self.check() {
                // The poll tells of a death too; the limit is for a caller who has to be asked.
                Ok(()) => self.link.await_news(Some(self.longest(DOUBT))).map_err(stop_of)?,
                // It may have spoken last and died then: one more look.
                Err(stop) => ended = Some(stop),
            }
        }
    }

    /// Waits until a descriptor of an arm is ready, or there is a reason to look around. The arm's
    /// own descriptors do not tell of the peer's death while a child of the peer has them open.
    pub fn await_ready(&self, fd: BorrowedFd<'_>, events: PollFlags) -> Result<(), Stop> {
        self.link.await_beside(fd, events, self.longest(DOUBT)).map_err(stop_of)
    }

    /// Waits until `ready` has an answer: spins, then sleeps on `event` and on the peer's sign of
    /// life. What the peer left behind before it died is still found.
    pub fn wait<T>(
        &self,
        event: Event<'_>,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Result<T, Stop> {
        let mut spinner = Spinner::new(self.wait, self.alone);
        loop {
            if let Some(answer) = ready() {
                return Ok(answer);
            }
            match spinner.turn() {
                // A short look needs no look around: it costs more than the word.
                Turn::LookAround if self.wait == Wait::Spin => {}
                Turn::Look | Turn::LookAround => continue,
                Turn::Sleep => break,
            }
            if let Some(end) = self.look_around(&mut ready) {
                return end;
            }
        }
        loop {
            let seen = event.prepare();
            if let Some(answer) = ready() {
                return Ok(answer);
            }
            let woken = self.sleep(event, seen);
            if let Some(answer) = ready() {
                return Ok(answer);
            }
            // Who is woken for nothing again and again ends in time all the same.
            if (!woken || self.is_timed())
                && let Some(end) = self.look_around(&mut ready)
            {
                return end;
            }
        }
    }

    /// Sleeps until there is news, or the peer's life is over. Whether it was woken: then there is
    /// no reason to doubt the peer.
    fn sleep(&self, event: Event<'_>, seen: u32) -> bool {
        match self.peers_sign.as_ref().map(PeersSign::now) {
            Some(Life::Over) => return false,
            Some(Life::Goes(word, value)) => {
                let most = self.longest(DOUBT);
                match event.sleep_beside(seen, (word, value), most) {
                    Ok(()) => return true,
                    Err(Errno::TIMEDOUT) => return false,
                    // Refused from now on: as without a sign.
                    Err(_) => {}
                }
            }
            None => {}
        }
        event.sleep_from(seen, self.longest(LOOK));
        false
    }

    /// How long to sleep at most: so long, but not beyond the deadline, and no longer than the
    /// caller may have to be asked.
    fn longest(&self, most: Duration) -> Duration {
        let most = if self.stop.is_some() { most.min(ASK) } else { most };
        self.deadline.map_or(most, |at| most.min(at.saturating_duration_since(Instant::now())))
    }

    /// Whether a wait has to end without what it waits for.
    fn look_around<T>(&self, ready: &mut impl FnMut() -> Option<T>) -> Option<Result<T, Stop>> {
        // It may have spoken last and died then.
        self.check().err().map(|stop| ready().ok_or(stop))
    }

    /// Whether there is a core for each side.
    pub fn has_free_core(&self) -> bool {
        !self.alone
    }

    /// Whether there is a reason to go on: the peer lives, nobody says stop, there is time.
    pub fn check(&self) -> Result<(), Stop> {
        match self.wanted() {
            // A peer that is gone is the better news.
            Err(Stop::Late) => self.check_peer().and(Err(Stop::Late)),
            Err(stop) => Err(stop),
            Ok(()) => self.check_peer(),
        }
    }

    /// Whether the peer lives and has not given up. What was read of its memory before this answers
    /// is what it was: a sender gives up before its caller may touch that memory again.
    pub fn check_peer(&self) -> Result<(), Stop> {
        let over = matches!(self.peers_sign.as_ref().map(PeersSign::now), Some(Life::Over));
        if over || !self.link.peer_is_alive() { Err(Stop::Died) } else { Ok(()) }
    }

    /// Nothing more is said or heard: the peer, which may be in the middle of a buffer, is told at
    /// once, and not when this end is dropped.
    pub fn give_up(&self) {
        if self.mark.is_here() {
            self.link.hang_up();
        }
    }

    /// Waits until the peer is gone with all its threads: then it writes nothing any more. The sign
    /// of life comes before that.
    pub fn outlive(&self) {
        while self.link.peer_is_alive() {
            self.link.await_end(DOUBT);
        }
    }

    /// Whether the caller still wants it.
    pub fn wanted(&self) -> Result<(), Stop> {
        if self.stop.is_some_and(|stop| stop()) {
            return Err(Stop::Interrupted);
        }
        match self.deadline {
            Some(deadline) if Instant::now() >= deadline => Err(Stop::Late),
            _ => Ok(()),
        }
    }
}

/// The note with this number, if it is there.
fn note_in(page: &Page, far: usize, heard: u32) -> Option<Result<Note, Stop>> {
    // PAIRS WITH: the store in `tell`.
    let told = page.u32(far + 128).load(Ordering::Acquire);
    match told.wrapping_sub(heard) {
        0 => None,
        1..=UNREAD => {
            let at = far + FIRST + (heard % UNREAD) as usize * APART;
            let word = |n: usize| page.u64(at + n * 8).load(Ordering::Relaxed);
            Some(Note::parse(&std::array::from_fn::<u64, NOTE, _>(word)))
        }
        _ => Some(Err(Stop::Corrupt("more notes than there is room for".to_owned()))),
    }
}

/// What a failed link means for a transfer.
pub(crate) fn stop_of(error: Error) -> Stop {
    match error {
        Error::Closed { .. } | Error::PeerDied { .. } => Stop::Died,
        Error::Corrupt { what } => Stop::Corrupt(what),
        Error::Timeout => Stop::Interrupted,
        Error::System { call, errno } => Stop::refused(call, errno),
        other => Stop::Refused(Unfit::because(other.to_string())),
    }
}

//! The conversation of two ends about their transfers: short notes through shared memory, or over the
//! link where there is none; messages over the link; and every wait.

use super::control_message::{ControlMessage, Kind};
use crate::error::Error;
use crate::layout::{UNREAD, Words};
use crate::link::Link;
use crate::shared::end::End;
use crate::shared::line::Line;
use crate::shared::liveness::{EXIT_GRACE, Gone, RECHECK};
use crate::shared::stop::Stop;
use crate::shared::wait::Limits;
use crate::shared::wait::spin::is_alone_with;
use crate::shared::wait::steps::{self, Cursor};
use rustix::event::PollFlags;
use rustix::fd::{BorrowedFd, OwnedFd};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use thalweg_core::Unfit;

/// Words of a note: its kind and five more.
pub(crate) const NOTE: usize = 6;

/// What a note says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Say {
    /// Sender: a buffer begins; word 1 is its length, the rest is the mechanism's.
    Begin = 1,
    /// Receiver: here is where it goes, for mechanisms that need to know.
    Ready = 2,
    /// Sender: my part is done.
    Finished = 3,
    /// Receiver: all of it is here.
    Done = 4,
    /// Receiver: I cannot take it this way; word 1 is the errno.
    Refused = 5,
    /// Sender: another mechanism follows over the link.
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

    /// For complaints: what the other side said.
    const fn words(self) -> &'static str {
        match self {
            Self::Begin => "the start of a buffer",
            Self::Ready => "the place for a buffer",
            Self::Finished => "the end of a buffer",
            Self::Done => "the receipt of a buffer",
            Self::Refused => "a refusal",
            Self::StepDown => "another mechanism",
            Self::Bye => "the end of the transfer",
        }
    }
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

    fn parse(word: impl Fn(usize) -> u64) -> Result<Self, Stop> {
        let kind = word(0);
        let say = Say::ALL.into_iter().find(|say| *say as u64 == kind);
        let say = say.ok_or_else(|| Stop::corrupt("an unknown note"))?;
        Ok(Self { say, words: std::array::from_fn(|n| word(n + 1)) })
    }
}

/// A message of the other side with the descriptors that came along.
pub(crate) struct Received {
    pub message: ControlMessage,
    pub fds: Vec<OwnedFd>,
}

enum Door {
    /// Notes told and heard are counted.
    Shared { end: Box<End>, told: u64, heard: u64 },
    /// Notes go over the link; those that came while a message was waited for are dropped.
    Link { line: Line, messages: VecDeque<Received> },
}

/// One side's end of the conversation.
pub(crate) struct Control {
    door: Door,
    limits: Limits,
}

impl Control {
    /// Through shared memory.
    pub fn shared(end: End, limits: Limits) -> Self {
        Self { door: Door::Shared { end: Box::new(end), told: 0, heard: 0 }, limits }
    }

    /// Over the link alone.
    pub fn over(line: Line, limits: Limits) -> Self {
        Self { door: Door::Link { line, messages: VecDeque::new() }, limits }
    }

    /// From now on everything ends at this moment; `None` is never.
    pub fn until(&mut self, deadline: Option<Instant>) {
        self.limits.deadline = deadline;
    }

    /// Whether the call under way has an end.
    pub fn is_timed(&self) -> bool {
        self.limits.deadline.is_some()
    }

    fn line(&self) -> &Line {
        match &self.door {
            Door::Shared { end, .. } => &end.line,
            Door::Link { line, .. } => line,
        }
    }

    pub fn link(&self) -> &Link {
        &self.line().link
    }

    /// [`Error::Forked`] in a child.
    pub fn check_here(&self) -> Result<(), Error> {
        self.line().check_here()
    }

    /// Tells the other side.
    pub fn tell(&mut self, note: Note) -> Result<(), Stop> {
        self.tell_quietly(note)?;
        self.announce();
        Ok(())
    }

    /// The same, but a side that sleeps is woken by what is told or announced next.
    pub fn tell_quietly(&mut self, note: Note) -> Result<(), Stop> {
        let mut words = [note.say as u64; NOTE];
        words[1..].copy_from_slice(&note.words);
        let Door::Shared { end, told, .. } = &mut self.door else {
            return self.send(&ControlMessage::new(Kind::Note).words(&words), &[]);
        };
        let place = &end.own.words().notes.0[(*told % UNREAD) as usize];
        for (to, word) in place.iter().zip(words) {
            to.store(word, Relaxed);
        }
        *told += 1;
        end.own.words().cursor.0.publish_quietly(*told);
        Ok(())
    }

    /// Waits for the next note of the other side.
    pub fn hear(&mut self) -> Result<Note, Stop> {
        let Door::Shared { end, heard, .. } = &mut self.door else { return self.hear_over_link() };
        // The note itself is read afterwards: as what is waited for it would be copied by every
        // layer in between, which costs more than the wait.
        wait_for(end, self.limits, |theirs| has_told(theirs, *heard))?;
        let place = &end.peer.words().notes.0[(*heard % UNREAD) as usize];
        *heard += 1;
        Note::parse(|n| place[n].load(Relaxed))
    }

    fn hear_over_link(&mut self) -> Result<Note, Stop> {
        loop {
            let got = self.receive()?;
            if got.message.kind == Kind::Note {
                return Note::parse(|n| got.message.word(n));
            }
            if let Door::Link { messages, .. } = &mut self.door {
                if messages.len() as u64 > UNREAD {
                    return Err(Stop::corrupt("messages that were not asked for"));
                }
                messages.push_back(got);
            }
        }
    }

    /// Hears a note that must be `say`; a refusal by the other side is an answer.
    pub fn expect(&mut self, say: Say) -> Result<Note, Stop> {
        let note = self.hear()?;
        match note.say {
            heard if heard == say => Ok(note),
            Say::Refused => Err(Stop::told("refused by the receiver", note.words[0])),
            other => Err(Stop::unexpected(other.words(), say.words())),
        }
    }

    /// Sends a message over the link.
    pub fn send(&mut self, message: &ControlMessage, fds: &[BorrowedFd<'_>]) -> Result<(), Stop> {
        let (bytes, mut waits) = (message.to_bytes(), 0);
        loop {
            match self.link().send_until(&bytes, fds, Some(Instant::now())) {
                Ok(()) => return Ok(()),
                Err(Error::Timeout) => {}
                Err(error) => return Err(of_link(error)),
            }
            self.check()?;
            let limit = self.patience(&mut waits);
            self.link().await_room(Some(limit)).map_err(of_link)?;
        }
    }

    /// How long to wait for the link next. Who waits for the second time is told of a death at once, for
    /// which another thread is needed: most waits are over before.
    fn patience(&mut self, waits: &mut u64) -> Duration {
        *waits += 1;
        match &mut self.door {
            Door::Shared { end, .. } if *waits > 1 => end.watch(),
            Door::Shared { .. } => return self.limits.left_of(EXIT_GRACE),
            Door::Link { .. } => {}
        }
        self.limits.left_of(RECHECK)
    }

    /// Sends a message that may as well be missed: not where there is no room for it now.
    pub fn mention(&mut self, message: &ControlMessage) {
        let _ = self.link().send_until(&message.to_bytes(), &[], Some(Instant::now()));
    }

    /// The next message that is not a note.
    pub fn message(&mut self) -> Result<Received, Stop> {
        if let Door::Link { messages, .. } = &mut self.door
            && let Some(first) = messages.pop_front()
        {
            return Ok(first);
        }
        loop {
            let got = self.receive()?;
            if got.message.kind != Kind::Note {
                return Ok(got);
            }
            // A peer that never stops talking does not keep us from ending.
            self.wanted()?;
        }
    }

    fn receive(&mut self) -> Result<Received, Stop> {
        let (mut ended, mut waits) = (None, 0);
        loop {
            let line = match &mut self.door {
                Door::Shared { end, .. } => &mut end.line,
                Door::Link { line, .. } => line,
            };
            if let Some(got) = line.next().map_err(of_link)? {
                let message = ControlMessage::parse(&got.bytes)?;
                return Ok(Received { message, fds: got.fds });
            }
            if let Some(stop) = ended {
                return Err(stop);
            }
            match self.check() {
                // The poll tells of a death too; the limit is for a caller that has to be asked.
                Ok(()) => {
                    let limit = self.patience(&mut waits);
                    self.link().await_news(Some(limit)).map_err(of_link)?;
                }
                // It may have spoken last and died then: one more look.
                Err(stop) => ended = Some(stop),
            }
        }
    }

    /// Waits until a descriptor of a mechanism is ready, or there is a reason to look around. The
    /// mechanism's own descriptors do not tell of the peer's death while a child of the peer has
    /// them open.
    pub fn await_ready(&self, fd: BorrowedFd<'_>, events: PollFlags) -> Result<(), Stop> {
        let limit = self.limits.left_of(RECHECK);
        self.link().await_beside(fd, events, limit).map_err(of_link)
    }

    /// From now on [`Control::await_ready`], and a call on `fd` if that is a socket, ends when the peer dies.
    pub fn watch_with(&mut self, fd: &Arc<OwnedFd>) {
        if let Door::Shared { end, .. } = &mut self.door {
            end.watch_with(fd);
        }
    }

    /// Waits until `look`, which sees the peer's words, finds something. What the peer left behind
    /// before it died is still found.
    pub fn wait<T>(
        &mut self,
        look: impl FnMut(&Words) -> Result<Option<T>, Error>,
    ) -> Result<T, Stop> {
        match &mut self.door {
            Door::Shared { end, .. } => wait_for(end, self.limits, look),
            Door::Link { .. } => Err(Stop::Refused(Unfit::because("no memory is shared"))),
        }
    }

    /// Moves our count of slots. `quietly`: the peer does not wait for this one.
    pub fn publish_slots(&mut self, to: u64, quietly: bool) {
        if let Door::Shared { end, .. } = &mut self.door {
            end.publish_slots(to, quietly);
        }
    }

    /// Wakes the peer after a change to memory of a mechanism that it may wait for.
    pub fn announce(&mut self) {
        if let Door::Shared { end, .. } = &mut self.door {
            end.announce();
        }
    }

    /// Whether there is a processor for each side.
    pub fn has_free_core(&self) -> bool {
        match &self.door {
            Door::Shared { end, .. } => end.has_free_core(),
            Door::Link { line, .. } => !is_alone_with(line.link.peer()),
        }
    }

    /// Whether there is a reason to go on: the peer lives, no limit is reached.
    pub fn check(&mut self) -> Result<(), Stop> {
        match self.wanted() {
            // A peer that is gone is the better news.
            Err(Stop::Late) => self.check_peer().and(Err(Stop::Late)),
            Err(stop) => Err(stop),
            Ok(()) => self.check_peer(),
        }
    }

    /// Whether the peer lives and has not given up. What was read of its memory before this answers
    /// is what it was: a sender gives up before its caller may touch that memory again.
    pub fn check_peer(&mut self) -> Result<(), Stop> {
        let gone = match &mut self.door {
            Door::Shared { end, .. } => end.gone(true),
            Door::Link { line, .. } => (!line.link.peer_is_alive()).then_some(Gone::Died),
        };
        gone.map_or(Ok(()), |gone| Err(Stop::Gone(gone)))
    }

    /// Nothing more is said or heard: the peer, which may be in the middle of a buffer, is told at
    /// once, and not when this end is dropped.
    pub fn close(&mut self) {
        if let Door::Shared { end, .. } = &mut self.door {
            end.close();
        }
        if self.line().is_here() {
            self.link().hang_up();
        }
    }

    /// Waits until the peer is gone with all its threads: then it writes nothing any more. The
    /// kernel marks its death before that.
    pub fn outlive(&self) {
        while !self.link().peer_has_ended() && !self.peer_has_hung_up() {
            self.link().await_end(RECHECK);
        }
    }

    /// Whether the peer has ended the link itself, and not a watch on its mark.
    fn peer_has_hung_up(&self) -> bool {
        // In this order: the watch hangs up after the mark.
        let is_hung_up = self.link().is_hung_up();
        is_hung_up && !matches!(&self.door, Door::Shared { end, .. } if end.peer.words().has_died())
    }

    /// Whether the caller still wants it.
    pub fn wanted(&self) -> Result<(), Stop> {
        self.limits.check()
    }
}

#[inline]
fn wait_for<T>(
    end: &mut End,
    limits: Limits,
    mut look: impl FnMut(&Words) -> Result<Option<T>, Error>,
) -> Result<T, Stop> {
    match end.wait_for(limits, &mut |end| look(end.peer.words())) {
        // A peer that is gone is the better news.
        Err(Stop::Late) => Err(end.gone(true).map_or(Stop::Late, Stop::Gone)),
        answer => answer,
    }
}

/// Whether the note with this number is there.
#[inline]
fn has_told(theirs: &Words, number: u64) -> Result<Option<()>, Error> {
    match steps::seen(&theirs.cursor.0).wrapping_sub(number) {
        0 => Ok(None),
        1..=UNREAD => Ok(Some(())),
        _ => Err(Error::corrupt("more notes than there is room for")),
    }
}

/// What a failed link means for a transfer.
fn of_link(error: Error) -> Stop {
    match error {
        Error::Closed { .. } | Error::PeerDied { .. } => Stop::Gone(Gone::Died),
        Error::Corrupt { .. } => Stop::Failed(error),
        Error::Timeout => Stop::Late,
        Error::System { call, errno } => Stop::refused(call, errno),
        other => Stop::Refused(Unfit::because(other.to_string())),
    }
}

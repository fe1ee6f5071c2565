//! Communication between the two ends of a transfer. Notes of a few words go through shared memory, or over the link if
//! no memory is shared. Messages with descriptors or text go over the link. This module also implements all waiting for
//! the peer.

use super::control_message::{ControlKind, ControlMessage};
use crate::error::Error;
use crate::layout::{SideWords, UNREAD};
use crate::link::Link;
use crate::shared::end::ChannelEnd;
use crate::shared::line::LinkLine;
use crate::shared::liveness::{EXIT_GRACE, Gone};
use crate::shared::stop::WaitStop;
use crate::shared::wait::WaitLimits;
use crate::shared::wait::spin::is_alone_with;
use crate::shared::wait::steps::{self, Cursor};
use rustix::event::PollFlags;
use rustix::fd::{BorrowedFd, OwnedFd};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use thalweg_core::{Unfit, cadence::LIVENESS};

/// Number of words in a note: its kind and five more.
pub(crate) const NOTE: usize = 6;

/// Kind of a note. Each comment names the side that sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Say {
    /// Sender: a buffer begins. Word 1 is its length, and the mechanism defines the other words.
    Begin = 1,
    /// Receiver: word 1 is the address of the destination, for mechanisms that need it.
    Ready = 2,
    /// Sender: it has done its part of the buffer.
    Finished = 3,
    /// Receiver: the whole buffer has arrived.
    Done = 4,
    /// Receiver: it cannot receive the buffer by this mechanism. Word 1 is the errno.
    Refused = 5,
    /// Sender: an offer of another mechanism follows over the link.
    StepDown = 6,
    /// Sender: no more buffers follow.
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

    /// Returns the kind of note in words, for error messages.
    const fn words(self) -> &'static str {
        match self {
            Self::Begin => "the start of a buffer",
            Self::Ready => "the destination of a buffer",
            Self::Finished => "the end of a buffer",
            Self::Done => "the confirmation of a buffer",
            Self::Refused => "a refusal",
            Self::StepDown => "a change to another mechanism",
            Self::Bye => "the end of the transfer",
        }
    }
}

/// A note: its kind, and the words that follow.
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

    fn parse(word: impl Fn(usize) -> u64) -> Result<Self, WaitStop> {
        let kind = word(0);
        let say = Say::ALL.into_iter().find(|say| *say as u64 == kind);
        let say = say.ok_or_else(|| WaitStop::corrupt("a control message of unknown kind"))?;
        Ok(Self { say, words: std::array::from_fn(|n| word(n + 1)) })
    }
}

/// A message from the peer, with the descriptors that it carried.
pub(crate) struct ReceivedControl {
    pub message: ControlMessage,
    pub fds: Vec<OwnedFd>,
}

enum ControlDoor {
    /// Notes go through shared memory. `told` counts the notes sent, and `heard` those received.
    Shared { end: Box<ChannelEnd>, told: u64, heard: u64 },
    /// Notes go over the link. `messages` keeps the messages that arrive while this side waits for a note. Notes that
    /// arrive while it waits for a message are dropped.
    Link { line: LinkLine, messages: VecDeque<ReceivedControl> },
}

/// One side's access to the communication with the peer.
pub(crate) struct BulkControl {
    door: ControlDoor,
    limits: WaitLimits,
}

impl BulkControl {
    /// Communicates through shared memory.
    pub fn shared(end: ChannelEnd, limits: WaitLimits) -> Self {
        Self { door: ControlDoor::Shared { end: Box::new(end), told: 0, heard: 0 }, limits }
    }

    /// Communicates over the link only.
    pub fn over(line: LinkLine, limits: WaitLimits) -> Self {
        Self { door: ControlDoor::Link { line, messages: VecDeque::new() }, limits }
    }

    /// Sets the deadline of all following operations; `None` means no limit.
    pub fn until(&mut self, deadline: Option<Instant>) {
        self.limits.deadline = deadline;
    }

    /// Returns `true` if the current call has a deadline.
    pub fn is_timed(&self) -> bool {
        self.limits.deadline.is_some()
    }

    fn line(&self) -> &LinkLine {
        match &self.door {
            ControlDoor::Shared { end, .. } => &end.line,
            ControlDoor::Link { line, .. } => line,
        }
    }

    pub fn link(&self) -> &Link {
        &self.line().link
    }

    /// Returns [`Error::Forked`] in a forked child.
    pub fn check_here(&self) -> Result<(), Error> {
        self.line().check_here()
    }

    /// Sends a note to the peer and wakes it if it sleeps.
    pub fn tell(&mut self, note: Note) -> Result<(), WaitStop> {
        self.tell_quietly(note)?;
        self.announce();
        Ok(())
    }

    /// Sends a note without waking the peer. The next call of [`BulkControl::tell`] or [`BulkControl::announce`] wakes
    /// it.
    pub fn tell_quietly(&mut self, note: Note) -> Result<(), WaitStop> {
        let mut words = [note.say as u64; NOTE];
        words[1..].copy_from_slice(&note.words);
        let ControlDoor::Shared { end, told, .. } = &mut self.door else {
            return self.send(&ControlMessage::new(ControlKind::Note).words(&words), &[]);
        };
        let place = &end.own.words().notes.0[(*told % UNREAD) as usize];
        for (to, word) in place.iter().zip(words) {
            to.store(word, Relaxed);
        }
        *told += 1;
        end.own.words().cursor.0.publish_quietly(*told);
        Ok(())
    }

    /// Waits for the peer's next note.
    pub fn hear(&mut self) -> Result<Note, WaitStop> {
        let ControlDoor::Shared { end, heard, .. } = &mut self.door else {
            return self.hear_over_link();
        };
        // Read the note after the wait. If the wait returned the note, each function on the call path would copy it,
        // which costs more than the wait itself.
        wait_for(end, self.limits, |theirs| has_published(theirs, *heard))?;
        let place = &end.peer.words().notes.0[(*heard % UNREAD) as usize];
        *heard += 1;
        Note::parse(|n| place[n].load(Relaxed))
    }

    fn hear_over_link(&mut self) -> Result<Note, WaitStop> {
        loop {
            let got = self.receive()?;
            if got.message.kind == ControlKind::Note {
                return Note::parse(|n| got.message.word(n));
            }
            if let ControlDoor::Link { messages, .. } = &mut self.door {
                if messages.len() as u64 > UNREAD {
                    return Err(WaitStop::corrupt("too many unexpected messages"));
                }
                messages.push_back(got);
            }
        }
    }

    /// Receives a note that must be of kind `say`. Returns [`WaitStop::Refused`] if the peer refused instead.
    pub fn expect(&mut self, say: Say) -> Result<Note, WaitStop> {
        let note = self.hear()?;
        match note.say {
            heard if heard == say => Ok(note),
            Say::Refused => Err(WaitStop::told("refused by the receiver", note.words[0])),
            other => Err(WaitStop::unexpected(other.words(), say.words())),
        }
    }

    /// Sends a message over the link.
    pub fn send(
        &mut self,
        message: &ControlMessage,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), WaitStop> {
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

    /// Returns the time limit of the next wait on the link. From the second wait on, also starts a watcher thread,
    /// which reports the peer's death at once. The first wait does without it, because most operations need no second
    /// wait.
    fn patience(&mut self, waits: &mut u64) -> Duration {
        *waits += 1;
        match &mut self.door {
            ControlDoor::Shared { end, .. } if *waits > 1 => end.watch(),
            ControlDoor::Shared { .. } => return self.limits.left_of(EXIT_GRACE),
            ControlDoor::Link { .. } => {}
        }
        self.limits.left_of(LIVENESS)
    }

    /// Sends an optional message. Drops the message if the link has no room now.
    pub fn mention(&mut self, message: &ControlMessage) {
        let _ = self.link().send_until(&message.to_bytes(), &[], Some(Instant::now()));
    }

    /// Returns the next message that is not a note.
    pub fn message(&mut self) -> Result<ReceivedControl, WaitStop> {
        if let ControlDoor::Link { messages, .. } = &mut self.door
            && let Some(first) = messages.pop_front()
        {
            return Ok(first);
        }
        loop {
            let got = self.receive()?;
            if got.message.kind != ControlKind::Note {
                return Ok(got);
            }
            // A peer that keeps sending notes must not keep this call beyond its deadline.
            self.wanted()?;
        }
    }

    fn receive(&mut self) -> Result<ReceivedControl, WaitStop> {
        let (mut ended, mut waits) = (None, 0);
        loop {
            let line = match &mut self.door {
                ControlDoor::Shared { end, .. } => &mut end.line,
                ControlDoor::Link { line, .. } => line,
            };
            if let Some(got) = line.next().map_err(of_link)? {
                let message = ControlMessage::parse(&got.bytes)?;
                return Ok(ReceivedControl { message, fds: got.fds });
            }
            if let Some(stop) = ended {
                return Err(stop);
            }
            match self.check() {
                // The poll also ends when the peer dies. It has a time limit only so that the caller's `stop` function
                // is called.
                Ok(()) => {
                    let limit = self.patience(&mut waits);
                    self.link().await_news(Some(limit)).map_err(of_link)?;
                }
                // The peer may have sent a message before it died, so read the link once more.
                Err(stop) => ended = Some(stop),
            }
        }
    }

    /// Waits until a descriptor of a mechanism is ready, or until it is time to check if the peer lives. This check is
    /// needed, because a child of the dead peer may hold the other end of the pipe or socket open.
    pub fn await_ready(&self, fd: BorrowedFd<'_>, events: PollFlags) -> Result<(), WaitStop> {
        let limit = self.limits.left_of(LIVENESS);
        self.link().await_beside(fd, events, limit).map_err(of_link)
    }

    /// Makes the peer's death end every later [`BulkControl::await_ready`] and, if `fd` is a socket, system calls on
    /// it.
    pub fn watch_with(&mut self, fd: &Arc<OwnedFd>) {
        if let ControlDoor::Shared { end, .. } = &mut self.door {
            end.watch_with(fd);
        }
    }

    /// Waits until `look` returns a result. `look` reads the words of the peer's memory. Data that the peer wrote just
    /// before it died still counts.
    pub fn wait<T>(
        &mut self,
        look: impl FnMut(&SideWords) -> Result<Option<T>, Error>,
    ) -> Result<T, WaitStop> {
        match &mut self.door {
            ControlDoor::Shared { end, .. } => wait_for(end, self.limits, look),
            ControlDoor::Link { .. } => {
                Err(WaitStop::Refused(Unfit::because("the two processes share no memory")))
            }
        }
    }

    /// Sets our slot count to `to`. If `quietly` is `true`, does not wake the peer. The caller must know that the peer
    /// does not wait for this slot.
    pub fn publish_slots(&mut self, to: u64, quietly: bool) {
        if let ControlDoor::Shared { end, .. } = &mut self.door {
            end.publish_slots(to, quietly);
        }
    }

    /// Wakes the peer if it sleeps. Call this after each change to a mechanism's memory that the peer may wait for.
    pub fn announce(&mut self) {
        if let ControlDoor::Shared { end, .. } = &mut self.door {
            end.announce();
        }
    }

    /// Returns `true` if the two sides can run at the same time, on different processors.
    pub fn has_free_core(&self) -> bool {
        match &self.door {
            ControlDoor::Shared { end, .. } => end.has_free_core(),
            ControlDoor::Link { line, .. } => !is_alone_with(line.link.peer()),
        }
    }

    /// Returns an error if the peer is gone, the deadline has passed, or the caller's `stop` function requests the end.
    pub fn check(&mut self) -> Result<(), WaitStop> {
        match self.wanted() {
            // If the peer is gone, report that instead of the timeout.
            Err(WaitStop::Late) => self.check_peer().and(Err(WaitStop::Late)),
            Err(stop) => Err(stop),
            Ok(()) => self.check_peer(),
        }
    }

    /// Returns an error if the peer has died or given up. `Ok` also means that everything read from the peer's memory
    /// so far is valid, because a sender gives up before its caller may change that memory.
    pub fn check_peer(&mut self) -> Result<(), WaitStop> {
        let gone = match &mut self.door {
            ControlDoor::Shared { end, .. } => end.gone(true),
            ControlDoor::Link { line, .. } => (!line.link.peer_is_alive()).then_some(Gone::Died),
        };
        gone.map_or(Ok(()), |gone| Err(WaitStop::Gone(gone)))
    }

    /// Ends the communication. Notifies the peer at once, because the peer may be in the middle of a buffer.
    pub fn close(&mut self) {
        if let ControlDoor::Shared { end, .. } = &mut self.door {
            end.close();
        }
        if self.line().is_here() {
            self.link().hang_up();
        }
    }

    /// Waits until all threads of the peer have ended, so that the peer cannot write any more. It is not enough that
    /// the kernel has marked the peer's death in its shared word, because threads may run a little longer.
    pub fn outlive(&self) {
        while !self.link().peer_has_ended() && !self.peer_has_hung_up() {
            self.link().await_end(LIVENESS);
        }
    }

    /// Returns `true` if the peer itself closed the link. If the Linux kernel has marked the peer as dead, returns
    /// `false`, because then our own watcher may have shut the link down.
    fn peer_has_hung_up(&self) -> bool {
        // Read the link before the mark. The watcher shuts the link down only after the mark is set. In this order, a
        // link that the watcher shut down is never taken for one that the peer closed.
        let is_hung_up = self.link().is_hung_up();
        is_hung_up
            && !matches!(&self.door, ControlDoor::Shared { end, .. } if end.peer.words().has_died())
    }

    /// Returns an error if the deadline has passed or the caller's `stop` function requests the end.
    pub fn wanted(&self) -> Result<(), WaitStop> {
        self.limits.check()
    }
}

#[inline]
fn wait_for<T>(
    end: &mut ChannelEnd,
    limits: WaitLimits,
    mut look: impl FnMut(&SideWords) -> Result<Option<T>, Error>,
) -> Result<T, WaitStop> {
    match end.wait_for(limits, &mut |end| look(end.peer.words())) {
        // If the peer is gone, report that instead of the timeout.
        Err(WaitStop::Late) => Err(end.gone(true).map_or(WaitStop::Late, WaitStop::Gone)),
        answer => answer,
    }
}

/// Returns `Some` if the peer has sent the note with this number.
#[inline]
fn has_published(theirs: &SideWords, number: u64) -> Result<Option<()>, Error> {
    match steps::seen(&theirs.cursor.0).wrapping_sub(number) {
        0 => Ok(None),
        1..=UNREAD => Ok(Some(())),
        _ => {
            Err(Error::corrupt("the peer sent more control messages than the shared memory holds"))
        }
    }
}

/// Converts an error of the link into the reason for which a transfer ends.
fn of_link(error: Error) -> WaitStop {
    match error {
        Error::Closed { .. } | Error::PeerDied { .. } => WaitStop::Gone(Gone::Died),
        Error::Corrupt { .. } => WaitStop::Failed(error),
        Error::Timeout => WaitStop::Late,
        Error::System { call, errno } => WaitStop::refused(call, errno),
        other => WaitStop::Refused(Unfit::because(other.to_string())),
    }
}

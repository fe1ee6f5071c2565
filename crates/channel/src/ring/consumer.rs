//! The reading end of a ring.

use super::Options;
use super::held::{Bytes, Held, HoldKeeper};
use super::pace::PollPace;
use crate::error::{Error, Result};
use crate::layout::{ALIGN, FRAME_HEADER, Frame, occupied};
use crate::link::Link;
use crate::shared::end::{ChannelEnd, WaitPatience};
use crate::shared::wait::steps;
use rustix::fd::{AsFd, BorrowedFd};
use std::ops::Deref;
use std::time::Instant;

/// Distance in bytes from the frame that is read to the two cache lines that are prefetched.
const AHEAD: u64 = 4 * ALIGN;

/// The reading end of a ring. Dropping it closes the channel, and the producer then gets [`Error::Closed`].
#[derive(Debug)]
pub struct Consumer {
    /// Declared before `end`, because it must be dropped before that field.
    keeper: HoldKeeper,
    pub(super) end: ChannelEnd,
    /// Number of bytes received since the beginning. It equals the published tail, unless a message is held.
    pub(super) tail: u64,
    /// The producer's head as it was last read. The current head may be larger.
    pub(super) head: u64,
    /// Number of messages received. Held messages count as received.
    pub(super) received: u64,
    pace: PollPace,
    trusted: bool,
    /// Buffer to which messages are copied if the producer is not trusted.
    scratch: Vec<u8>,
    broken: Option<Error>,
}

impl Consumer {
    /// Opens the ring that the producer at the other end of the link offers.
    pub fn open(link: Link, options: &Options) -> Result<Self> {
        Self::open_until(link, options, None)
    }

    /// Like [`Consumer::open`], but waits until `deadline` at most; `None` waits without limit.
    pub fn open_until(link: Link, options: &Options, deadline: Option<Instant>) -> Result<Self> {
        let accepted = super::ask(link, deadline)?.accept().map_err(super::error_of)?;
        Ok(Self::over(super::end(accepted.finish(), options)?, options))
    }

    pub(super) fn over(end: ChannelEnd, options: &Options) -> Self {
        let trusted = options.trusted;
        let scratch = Vec::new();
        Self {
            keeper: HoldKeeper::default(),
            end,
            tail: 0,
            head: 0,
            received: 0,
            pace: PollPace::default(),
            trusted,
            scratch,
            broken: None,
        }
    }

    /// Returns the size in bytes of the largest possible message: the capacity minus one header.
    pub fn largest(&self) -> usize {
        self.end.capacity() as usize - FRAME_HEADER
    }

    /// Returns the random number that identifies this channel.
    pub fn epoch(&self) -> u64 {
        self.end.own.geometry.epoch
    }

    /// Returns the number of messages received. Held messages count as received.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Waits for the next message and returns it.
    ///
    /// If the producer is gone and everything committed was received, returns [`Error::Closed`] if the producer closed
    /// its end, and otherwise [`Error::PeerDied`].
    pub fn receive(&mut self) -> Result<Sample<'_>> {
        self.receive_until(None)
    }

    /// Like [`Consumer::receive`], but waits until `deadline` at most; `None` waits without limit.
    pub fn receive_until(&mut self, deadline: Option<Instant>) -> Result<Sample<'_>> {
        self.data(WaitPatience::Until(deadline))?;
        let len = self.open_frame(self.tail, self.received)?;
        Ok(Sample { consumer: self, len })
    }

    /// Like [`Consumer::receive`], but returns `None` if no message is available now.
    pub fn try_receive(&mut self) -> Result<Option<Sample<'_>>> {
        if !self.data(WaitPatience::None)? {
            return Ok(None);
        }
        let len = self.open_frame(self.tail, self.received)?;
        Ok(Some(Sample { consumer: self, len }))
    }

    /// Prepares for polling in an event loop. If it returns `Ok(true)`, poll the descriptor for reading; when it is
    /// ready, call [`Consumer::try_receive`]. If it returns `Ok(false)`, receive at once, because a message is
    /// available or the producer is gone.
    pub fn arm(&mut self) -> Result<bool> {
        self.check()?;
        let (head, tail) = (self.head, self.tail);
        let armed =
            self.end.arm(&mut |end| Ok(Some(head_of(end, head, tail)?).filter(|h| *h > tail)));
        armed.map_err(|error| self.broke(error))
    }

    /// Returns the number of messages of this ring that are currently held; see [`Sample::hold`].
    pub fn held(&self) -> usize {
        self.keeper.held()
    }

    /// Returns `true` if both ends wait for each other: no message is available, and the producer waits for room or in
    /// [`Producer::drained_until`](super::Producer::drained_until). Neither end then makes progress until a held
    /// message is dropped. Intended for a consumer after a wait that timed out. The result is `false` until the
    /// producer has checked for room twice, so call this function after each of several waits.
    pub fn holds_up(&mut self) -> Result<bool> {
        self.check()?;
        Ok(self.keeper.holds_up() && !self.data(WaitPatience::None)?)
    }

    /// Returns the process at the writing end.
    pub fn peer(&self) -> &crate::link::Peer {
        self.end.line.link.peer()
    }

    /// Asks the kernel if the producer lives, because its liveness word may be wrong. [`Consumer::is_ready`] then reports
    /// its death.
    pub(crate) fn recheck_peer(&mut self) {
        self.end.gone(true);
    }

    /// Returns `true` if a message is available now.
    pub(crate) fn is_ready(&mut self) -> Result<bool> {
        self.data(WaitPatience::None)
    }

    /// Waits until a message is available. Returns `false` only with [`WaitPatience::None`], if none is available now.
    pub(super) fn data(&mut self, patience: WaitPatience) -> Result<bool> {
        self.check()?;
        if self.head > self.tail {
            return Ok(true);
        }
        let (head, tail) = (self.head, self.tail);
        if self.end.steps_back(patience) {
            for _ in 0..self.pace.pauses(self.received) {
                std::hint::spin_loop();
            }
        }
        let look =
            &mut |end: &ChannelEnd| Ok(Some(head_of(end, head, tail)?).filter(|h| *h > tail));
        let found = self.end.find(patience, look);
        match found {
            Ok(Some(head)) => {
                self.head = head;
                self.pace.found(self.received);
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(stop) => {
                let error = stop.into_error(self.received);
                Err(self.broke(error))
            }
        }
    }

    /// Checks the frame at position `at` and returns the length of its payload. If the producer is not trusted, also
    /// copies the payload.
    pub(super) fn open_frame(&mut self, at: u64, seq: u64) -> Result<usize> {
        let checked = self.check_frame(at, seq);
        checked.map_err(|error| self.broke(error))
    }

    fn check_frame(&mut self, at: u64, seq: u64) -> Result<usize> {
        // Prefetch lines of the payload and of later frames. The header contains the length, so the processor could
        // otherwise request these lines only after the header has arrived.
        let unread = self.head - at;
        if unread > ALIGN {
            self.end.peer.prefetch(at + ALIGN);
        }
        if unread > AHEAD {
            self.end.peer.prefetch(at + AHEAD);
            self.end.peer.prefetch(at + AHEAD + ALIGN);
        }
        let header = self.end.peer.frame_header(at);
        let frame = Frame::of_words(header, unread, seq).map_err(Error::corrupt)?;
        let len = frame.len as usize;
        if !self.trusted {
            // The buffer grows to the size of the largest message so far. The capacity of the ring limits that size.
            if self.scratch.len() < len {
                self.scratch.resize(len, 0);
            }
            self.end.peer.copy_payload(at, &mut self.scratch[..len]);
        }
        match frame.crc {
            Some(told) => {
                let found = Frame::sum(frame.len, seq, self.payload(at, len));
                if found == told {
                    return Ok(len);
                }
                let what = format!("frame {seq}: CRC {told:#010x} expected, {found:#010x} found");
                Err(Error::Corrupt { what })
            }
            None if self.end.peer.geometry.checksums => Err(Error::corrupt(format!(
                "frame {seq}: no CRC, although the ring uses checksums"
            ))),
            None => Ok(len),
        }
    }

    /// Returns the payload of the frame that `open_frame` last checked.
    pub(super) fn payload(&self, at: u64, len: usize) -> &[u8] {
        if self.trusted {
            // SAFETY: `open_frame` found `len` to be within the committed bytes. A trusted producer writes there only
            // after the tail has passed them, and moving the tail takes `&mut self`.
            unsafe { self.end.peer.payload(at, len) }
        } else {
            &self.scratch[..len]
        }
    }

    /// Holds the message at `at`, which `open_frame` last checked.
    pub(super) fn keep(&mut self, at: u64, len: usize) -> Held {
        let bytes = if self.trusted {
            Bytes::InPlace(len)
        } else {
            Bytes::Copied(self.payload(at, len).into())
        };
        self.keeper.hold(&mut self.end, self.tail, at, bytes)
    }

    /// Releases `messages` messages (at least one), up to position `tail`. The room of held messages is not given back
    /// to the producer.
    pub(super) fn release(&mut self, tail: u64, messages: u64) {
        // A forked child that inherited a sample must not release it, because the message belongs to the parent.
        if self.end.line.check_here().is_ok() {
            self.tail = tail;
            self.received += messages;
            if !self.keeper.is_used() {
                self.end.publish(tail);
            } else if let Err(error) = self.keeper.pass(tail, self.head) {
                // `broke` records the error, and the next call returns it.
                self.broke(error);
            }
        }
    }

    fn check(&self) -> Result<()> {
        self.end.line.check_here()?;
        self.broken.clone().map_or(Ok(()), Err)
    }

    pub(super) fn broke(&mut self, error: Error) -> Error {
        if matches!(error, Error::Corrupt { .. }) {
            self.broken = Some(error.clone());
        }
        error
    }
}

impl AsFd for Consumer {
    /// Returns the descriptor to poll. It is readable if a message may be available or the producer is gone. The
    /// descriptor is the link, on which the producer sends one byte. It is not an eventfd: an eventfd would not report
    /// a death, and the peer could change its flags so that our writes to it block.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.line.link.as_fd()
    }
}

/// Reads the producer's head and checks that it is plausible.
pub(super) fn head_of(end: &ChannelEnd, before: u64, tail: u64) -> Result<u64> {
    let head = steps::seen(&end.peer.words().cursor.0);
    // The subtraction cannot overflow, because head >= before >= tail.
    if head < before || head - tail > end.capacity() || !head.is_multiple_of(ALIGN) {
        let most = tail.saturating_add(end.capacity());
        let what = format!("head {head}: not a multiple of {ALIGN} between {before} and {most}");
        return Err(Error::Corrupt { what });
    }
    Ok(head)
}

/// A message, read in place. Dropping it gives its room back to the producer.
#[derive(Debug)]
pub struct Sample<'c> {
    consumer: &'c mut Consumer,
    len: usize,
}

impl Sample<'_> {
    /// Returns the size in bytes of the largest message that the ring can hold.
    pub fn largest(&self) -> usize {
        self.consumer.largest()
    }

    /// Keeps the message while later ones are received. A held message counts as received.
    pub fn hold(self) -> Held {
        let (at, len) = (self.consumer.tail, self.len);
        // Dropping `self` releases the message. The published tail nevertheless stays before the held message.
        self.consumer.keep(at, len)
    }
}

impl Deref for Sample<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.consumer.payload(self.consumer.tail, self.len)
    }
}

impl Drop for Sample<'_> {
    fn drop(&mut self) {
        let tail = self.consumer.tail + occupied(self.len as u64);
        self.consumer.release(tail, 1);
    }
}

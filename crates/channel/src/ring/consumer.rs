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

/// The reading end of a ring. Dropping it closes the channel: the producer then gets [`Error::Closed`].
#[derive(Debug)]
pub struct Consumer {
    /// Declared before `end`, because it must be dropped first.
    keeper: HoldKeeper,
    pub(super) end: ChannelEnd,
    /// Bytes received since the beginning. Equals the published tail, unless a message is held.
    pub(super) tail: u64,
    /// The producer's head as last read; never larger than the real one.
    pub(super) head: u64,
    /// Number of messages received, including held ones.
    pub(super) received: u64,
    pace: PollPace,
    trusted: bool,
    /// Buffer for copies of messages if the producer is not trusted.
    scratch: Vec<u8>,
    broken: Option<Error>,
}

impl Consumer {
    /// Opens the ring that the producer at the other end of the link offers.
    pub fn open(link: Link, options: &Options) -> Result<Self> {
        Self::open_until(link, options, None)
    }

    /// Like [`Consumer::open`], until `deadline` at the latest; `None` waits without limit.
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

    /// Returns the size of the largest possible message: the capacity minus one header.
    pub fn largest(&self) -> usize {
        self.end.capacity() as usize - FRAME_HEADER
    }

    /// Returns the random number that identifies this channel.
    pub fn epoch(&self) -> u64 {
        self.end.own.geometry.epoch
    }

    /// Returns the number of messages received, including held ones.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Waits for the next message and returns it.
    ///
    /// If the producer is gone and everything committed has been received, returns [`Error::Closed`] if
    /// the producer closed its end, otherwise [`Error::PeerDied`].
    pub fn receive(&mut self) -> Result<Sample<'_>> {
        self.receive_until(None)
    }

    /// Like [`Consumer::receive`], until `deadline` at the latest; `None` waits without limit.
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

    /// Prepares for polling in an event loop. After `Ok(true)`, poll the descriptor for reading; when
    /// it is ready, call [`Consumer::try_receive`], which disarms it. `Ok(false)`: a message is
    /// available or the producer is gone; receive at once.
    pub fn arm(&mut self) -> Result<bool> {
        self.check()?;
        let (head, tail) = (self.head, self.tail);
        let armed =
            self.end.arm(&mut |end| Ok(Some(head_of(end, head, tail)?).filter(|h| *h > tail)));
        armed.map_err(|error| self.broke(error))
    }

    /// Returns the number of messages of this ring that are held now, see [`Sample::hold`].
    pub fn held(&self) -> usize {
        self.keeper.held()
    }

    /// Returns `true` if no message is available while the producer waits, either for room or in
    /// [`Producer::drained_until`](super::Producer::drained_until). In that case neither end makes progress until a
    /// held message is dropped. Intended for a consumer after a wait that timed out. The result is `false` until the
    /// producer has checked twice, so call this function after each of several waits.
    pub fn holds_up(&mut self) -> Result<bool> {
        self.check()?;
        Ok(self.keeper.holds_up() && !self.data(WaitPatience::None)?)
    }

    /// Returns the writing process.
    pub fn peer(&self) -> &crate::link::Peer {
        self.end.line.link.peer()
    }

    /// Returns `true` if a message is available now.
    pub(crate) fn is_ready(&mut self) -> Result<bool> {
        self.data(WaitPatience::None)
    }

    /// Returns `true` if a message is available. `false` is possible only with [`WaitPatience::None`].
    pub(super) fn data(&mut self, patience: WaitPatience) -> Result<bool> {
        self.check()?;
        if self.head > self.tail {
            return Ok(true);
        }
        let (head, tail) = (self.head, self.tail);
        if self.pace.pauses() > 0 && self.end.steps_back(patience) && self.stays_away()? {
            return Ok(true);
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

    /// Checks the head once. If there is no new message, pauses before the next check. Returns `true` if it found a
    /// message.
    #[inline(never)]
    fn stays_away(&mut self) -> Result<bool> {
        self.head = head_of(&self.end, self.head, self.tail).map_err(|error| self.broke(error))?;
        if self.head > self.tail {
            self.pace.found(self.received);
            return Ok(true);
        }
        for _ in 0..self.pace.pauses() {
            std::hint::spin_loop();
        }
        Ok(false)
    }

    /// Checks the frame at `at` and returns the length of its payload. Copies the payload if the
    /// producer is not trusted.
    pub(super) fn open_frame(&mut self, at: u64, seq: u64) -> Result<usize> {
        let checked = self.check_frame(at, seq);
        checked.map_err(|error| self.broke(error))
    }

    fn check_frame(&mut self, at: u64, seq: u64) -> Result<usize> {
        // The length must be known before the payload is copied. Without this prefetch, the second
        // cache line would be requested from the producer's processor only after the first has arrived.
        if self.head - at > ALIGN {
            self.end.peer.touch(at + ALIGN);
        }
        let header = self.end.peer.frame_header(at);
        let frame = Frame::of_words(header, self.head - at, seq).map_err(Error::corrupt)?;
        let len = frame.len as usize;
        if !self.trusted {
            // Grows to the largest message received, which the ring's capacity bounds.
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

    /// Returns the payload of the frame that `open_frame` checked last.
    pub(super) fn payload(&self, at: u64, len: usize) -> &[u8] {
        if self.trusted {
            // SAFETY: `open_frame` found `len` within the committed bytes. A trusted producer does not write there
            // before the tail has passed, and moving the tail takes `&mut self`.
            unsafe { self.end.peer.payload(at, len) }
        } else {
            &self.scratch[..len]
        }
    }

    /// Holds the message at `at`, which `open_frame` checked last.
    pub(super) fn keep(&mut self, at: u64, len: usize) -> Held {
        let bytes = if self.trusted {
            Bytes::InPlace(len)
        } else {
            Bytes::Copied(self.payload(at, len).into())
        };
        self.keeper.hold(&mut self.end, self.tail, at, bytes)
    }

    /// Gives `messages` (at least one) back to the producer, up to position `tail`, except those that
    /// are held.
    pub(super) fn release(&mut self, tail: u64, messages: u64) {
        // A child that inherited a sample must not release it on behalf of its parent.
        if self.end.line.check_here().is_ok() {
            self.tail = tail;
            self.received += messages;
            if !self.keeper.is_used() {
                self.end.publish(tail);
            } else if let Err(error) = self.keeper.pass(tail, self.head) {
                // `broke` records corruption; the next call then returns the error.
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
    /// Returns the descriptor to poll: readable if a message may be available, or if the producer is gone. It is the
    /// link, on which the producer sends a byte. An eventfd would not signal a death. The peer could also change its
    /// flags and so make our writes block.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.line.link.as_fd()
    }
}

/// Returns the producer's head after a plausibility check.
pub(super) fn head_of(end: &ChannelEnd, before: u64, tail: u64) -> Result<u64> {
    let head = steps::seen(&end.peer.words().cursor.0);
    // The subtraction cannot overflow: head >= before >= tail.
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
    /// Returns the size of the largest message that the ring can hold.
    pub fn largest(&self) -> usize {
        self.consumer.largest()
    }

    /// Keeps the message while later ones are received. A held message counts as received.
    pub fn hold(self) -> Held {
        let (at, len) = (self.consumer.tail, self.len);
        // Dropping the sample passes the message, but the tail stays before it.
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

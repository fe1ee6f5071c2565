//! The end that reads messages.

use super::Options;
use super::held::{Bytes, Held, Keeper};
use super::pace::Pace;
use crate::error::{Error, Result};
use crate::layout::{ALIGN, FRAME_HEADER, Frame, occupied};
use crate::link::Link;
use crate::shared::end::{End, Patience};
use crate::shared::wait::steps;
use rustix::fd::{AsFd, BorrowedFd};
use std::ops::Deref;
use std::time::Instant;

/// The reading end of a ring. Dropping it is the goodbye: the producer gets [`Error::Closed`].
#[derive(Debug)]
pub struct Consumer {
    /// Dropped before the end.
    keeper: Keeper,
    pub(super) end: End,
    /// Bytes received since the beginning: as in our page, unless a message is held.
    pub(super) tail: u64,
    /// The producer's, when last looked at: never more than it is.
    pub(super) head: u64,
    /// Messages received, and released or held.
    pub(super) received: u64,
    pace: Pace,
    trusted: bool,
    /// Where messages of a producer that is not trusted are copied to.
    scratch: Vec<u8>,
    broken: Option<Error>,
}

impl Consumer {
    /// Takes the ring that the producer at the other end of the link offers.
    pub fn open(link: Link, options: &Options) -> Result<Self> {
        Self::open_until(link, options, None)
    }

    /// As [`Consumer::open`], for no longer than `deadline`; `None` is for ever.
    pub fn open_until(link: Link, options: &Options, deadline: Option<Instant>) -> Result<Self> {
        let accepted = super::ask(link, deadline)?.accept().map_err(super::error_of)?;
        Ok(Self::over(super::end(accepted.finish(), options)?, options))
    }

    pub(super) fn over(end: End, options: &Options) -> Self {
        let trusted = options.trusted;
        let scratch = Vec::new();
        Self {
            keeper: Keeper::default(),
            end,
            tail: 0,
            head: 0,
            received: 0,
            pace: Pace::default(),
            trusted,
            scratch,
            broken: None,
        }
    }

    /// The largest message that can come: the ring without one header.
    pub fn largest(&self) -> usize {
        self.end.capacity() as usize - FRAME_HEADER
    }

    /// The random number that this channel alone has.
    pub fn epoch(&self) -> u64 {
        self.end.own.geometry.epoch
    }

    /// Messages received, and released or held.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// The next message; waits for it.
    ///
    /// When everything committed has been received and the producer is gone: [`Error::Closed`] after
    /// its goodbye, else [`Error::PeerDied`].
    pub fn receive(&mut self) -> Result<Sample<'_>> {
        self.receive_until(None)
    }

    /// As [`Consumer::receive`], for no longer than `deadline`; `None` is for ever.
    pub fn receive_until(&mut self, deadline: Option<Instant>) -> Result<Sample<'_>> {
        self.data(Patience::Until(deadline))?;
        let len = self.open_frame(self.tail, self.received)?;
        Ok(Sample { consumer: self, len })
    }

    /// As [`Consumer::receive`]; `None` if there is no message now.
    pub fn try_receive(&mut self) -> Result<Option<Sample<'_>>> {
        if !self.data(Patience::None)? {
            return Ok(None);
        }
        let len = self.open_frame(self.tail, self.received)?;
        Ok(Some(Sample { consumer: self, len }))
    }

    /// For an event loop: after `Ok(true)`, poll its descriptor for reading; once it is ready,
    /// [`Consumer::try_receive`], which disarms it. `Ok(false)`: there is a message already, or the
    /// producer is gone; receive at once.
    pub fn arm(&mut self) -> Result<bool> {
        self.check()?;
        let (head, tail) = (self.head, self.tail);
        let armed =
            self.end.arm(&mut |end| Ok(Some(head_of(end, head, tail)?).filter(|h| *h > tail)));
        armed.map_err(|error| self.broke(error))
    }

    /// Messages of this ring that are held now, see [`Sample::hold`].
    pub fn held(&self) -> usize {
        self.keeper.held()
    }

    /// Whether the producer waits for room, or for [`Producer::drained_until`](super::Producer::drained_until),
    /// while no message is here: then neither end goes on until one that is held is dropped. For a
    /// consumer that has waited in vain; `false` is also the answer until the producer has looked twice,
    /// so ask after each of several waits.
    pub fn holds_up(&mut self) -> Result<bool> {
        self.check()?;
        Ok(self.keeper.holds_up() && !self.data(Patience::None)?)
    }

    /// The process that writes.
    pub fn peer(&self) -> &crate::link::Peer {
        self.end.line.link.peer()
    }

    /// Whether a message is there now.
    pub(crate) fn is_ready(&mut self) -> Result<bool> {
        self.data(Patience::None)
    }

    /// Whether a message is there. `false` only without patience.
    pub(super) fn data(&mut self, patience: Patience) -> Result<bool> {
        self.check()?;
        if self.head > self.tail {
            return Ok(true);
        }
        let (head, tail) = (self.head, self.tail);
        if self.pace.pauses() > 0 && self.end.steps_back(patience) && self.stays_away()? {
            return Ok(true);
        }
        let look = &mut |end: &End| Ok(Some(head_of(end, head, tail)?).filter(|h| *h > tail));
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

    /// One look, and if it finds nothing, the time to stay away. Whether it found something.
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

    /// Checks the frame at `at`; the length of its payload, which is copied if need be.
    pub(super) fn open_frame(&mut self, at: u64, seq: u64) -> Result<usize> {
        let checked = self.check_frame(at, seq);
        checked.map_err(|error| self.broke(error))
    }

    fn check_frame(&mut self, at: u64, seq: u64) -> Result<usize> {
        // A copy of the payload waits for the length: without this, its second line would be asked of
        // the producer's processor only when the first has come.
        if self.head - at > ALIGN {
            self.end.peer.touch(at + ALIGN);
        }
        let header = self.end.peer.frame_header(at);
        let frame = Frame::of_words(header, self.head - at, seq).map_err(Error::corrupt)?;
        let len = frame.len as usize;
        if !self.trusted {
            // Grows to the largest message that came, which the ring bounds.
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
                let what = format!("frame {seq}: CRC {told:#010x} told, {found:#010x} found");
                Err(Error::Corrupt { what })
            }
            None if self.end.peer.geometry.checksums => {
                Err(Error::corrupt(format!("frame {seq}: no CRC, in a ring with checksums")))
            }
            None => Ok(len),
        }
    }

    /// The payload of a frame that `open_frame` has checked last.
    pub(super) fn payload(&self, at: u64, len: usize) -> &[u8] {
        if self.trusted {
            // SAFETY: open_frame found len within the committed bytes. A trusted producer does not
            // write there before the tail has passed, which takes &mut self.
            unsafe { self.end.peer.payload(at, len) }
        } else {
            &self.scratch[..len]
        }
    }

    /// Keeps the message at `at`, which `open_frame` has checked last.
    pub(super) fn keep(&mut self, at: u64, len: usize) -> Held {
        let bytes = if self.trusted {
            Bytes::InPlace(len)
        } else {
            Bytes::Copied(self.payload(at, len).into())
        };
        self.keeper.hold(&mut self.end, self.tail, at, bytes)
    }

    /// Gives `messages`, at least one, back to the producer, up to position `tail`, but for those that
    /// are held.
    pub(super) fn release(&mut self, tail: u64, messages: u64) {
        // A child that inherited a sample must not release it for its parent.
        if self.end.line.check_here().is_ok() {
            self.tail = tail;
            self.received += messages;
            if !self.keeper.is_used() {
                self.end.publish(tail);
            } else if let Err(error) = self.keeper.pass(tail, self.head) {
                // For the next call.
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
    /// What to poll: readable when there may be a message, or when the producer is gone. It is the
    /// link, on which the producer sends a byte: an eventfd would not tell of a death, and its
    /// flags, which the peer shares, could make our writes block.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.line.link.as_fd()
    }
}

/// The producer's head, if it can be true.
pub(super) fn head_of(end: &End, before: u64, tail: u64) -> Result<u64> {
    let head = steps::seen(&end.peer.words().cursor.0);
    // In this order nothing overflows: before >= tail.
    if head < before || head - tail > end.capacity() || !head.is_multiple_of(ALIGN) {
        let most = tail.saturating_add(end.capacity());
        let what = format!("head {head}: not a multiple of {ALIGN} between {before} and {most}");
        return Err(Error::Corrupt { what });
    }
    Ok(head)
}

/// One message, where it lies. Dropping it gives its room back to the producer.
#[derive(Debug)]
pub struct Sample<'c> {
    consumer: &'c mut Consumer,
    len: usize,
}

impl Sample<'_> {
    /// The largest message that its ring can hold.
    pub fn largest(&self) -> usize {
        self.consumer.largest()
    }

    /// Keeps the message while others are received. It counts as received.
    pub fn hold(self) -> Held {
        let (at, len) = (self.consumer.tail, self.len);
        // Dropping the sample passes the message, and the tail stays before it.
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

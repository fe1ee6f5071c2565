//! Writing messages: one in place, or a batch that is committed together.

use super::Producer;
use crate::error::{Error, Result};
use crate::layout::occupied;
use crate::shared::end::WaitPatience;
use std::ops::{Deref, DerefMut};
use std::time::Instant;

impl Producer {
    /// Waits for room for a message of `len` bytes, and returns the room for writing in place. It starts at a multiple
    /// of 32 bytes and has arbitrary contents.
    ///
    /// If the consumer is gone, returns [`PeerDied`](crate::Error::PeerDied) or [`Closed`](crate::Error::Closed), with
    /// the number of messages that the consumer had released. Returns [`TooLarge`](crate::Error::TooLarge) if `len`
    /// exceeds [`Producer::largest`].
    pub fn loan(&mut self, len: usize) -> Result<Loan<'_>> {
        self.loan_until(len, None)
    }

    /// Like [`Producer::loan`], but waits until `deadline` at most; `None` waits without limit.
    pub fn loan_until(&mut self, len: usize, deadline: Option<Instant>) -> Result<Loan<'_>> {
        self.room(self.head, len, WaitPatience::Until(deadline))?;
        Ok(Loan::new(self, len))
    }

    /// Like [`Producer::loan`], but returns `None` if no room is available now.
    pub fn try_loan(&mut self, len: usize) -> Result<Option<Loan<'_>>> {
        let room = self.room(self.head, len, WaitPatience::None)?;
        Ok(room.then(|| Loan::new(self, len)))
    }

    /// Waits for room and sends a copy of `message`.
    pub fn send(&mut self, message: &[u8]) -> Result<()> {
        self.send_until(message, None)
    }

    /// Like [`Producer::send`], but waits until `deadline` at most; `None` waits without limit.
    pub fn send_until(&mut self, message: &[u8], deadline: Option<Instant>) -> Result<()> {
        let mut loan = self.loan_until(message.len(), deadline)?;
        loan.copy_from_slice(message);
        loan.commit()
    }

    /// Like [`Producer::send`], but returns `false` if no room is available now.
    pub fn try_send(&mut self, message: &[u8]) -> Result<bool> {
        let Some(mut loan) = self.try_loan(message.len())? else { return Ok(false) };
        loan.copy_from_slice(message);
        loan.commit()?;
        Ok(true)
    }

    /// Turns a detached loan into a [`Loan`] again, for writing or committing it. Its room is still reserved, and its
    /// bytes are unchanged.
    ///
    /// Returns [`Error::NotPermitted`] if the loan is from another producer, or if a message was committed since.
    /// Returns [`Error::Corrupt`] if the consumer violated the protocol and the room is lost. Other errors: see
    /// [`Producer::loan`].
    #[allow(
        clippy::needless_pass_by_value,
        reason = "the loan was already committed: a second commit would publish other bytes"
    )]
    pub fn attach(&mut self, loan: DetachedLoan) -> Result<Loan<'_>> {
        let DetachedLoan { epoch, head, len } = loan;
        if (epoch, head) != (self.epoch(), self.head) {
            let why = "the loan belongs to another producer, or a message was committed after it";
            return Err(Error::not_permitted(why));
        }
        if !self.room(head, len, WaitPatience::None)? {
            return Err(Error::corrupt("the space reserved for the loan was reused"));
        }
        Ok(Loan::new(self, len))
    }

    /// Starts a batch: several messages that become visible together. Publishing them costs as much as publishing one.
    pub fn batch(&mut self) -> Batch<'_> {
        Batch::new(self)
    }
}

/// Room for one message. [`Loan::commit`] makes the message visible to the consumer. Dropping the loan discards it.
#[derive(Debug)]
pub struct Loan<'p> {
    producer: &'p mut Producer,
    len: usize,
}

impl<'p> Loan<'p> {
    /// Creates a loan of `len` bytes, for which `producer.room` must have succeeded.
    pub(super) fn new(producer: &'p mut Producer, len: usize) -> Self {
        Self { producer, len }
    }

    /// Shortens the message to `len` bytes. Has no effect if the message is not longer.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Ends the borrow of the producer; [`Producer::attach`] restores it. In between, nothing else may be committed.
    /// The address of the bytes stays valid while the producer lives.
    pub fn detach(self) -> DetachedLoan {
        let (epoch, head) = (self.producer.epoch(), self.producer.head);
        DetachedLoan { epoch, head, len: self.len }
    }

    /// Makes the message visible. Returns [`crate::Error::Forked`] if the caller is a forked child.
    pub fn commit(self) -> Result<()> {
        let (at, seq) = (self.producer.head, self.producer.sent);
        let frame = self.producer.frame(self.len, seq, at);
        self.producer.end.line.check_here()?;
        self.producer.end.own.write_header(at, frame.to_words());
        self.producer.commit(at + occupied(self.len as u64), 1)
    }
}

impl Deref for Loan<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `room` has succeeded for `len`. The bytes are not committed, so no other process reads them.
        unsafe { self.producer.end.own.payload(self.producer.head, self.len) }
    }
}

impl DerefMut for Loan<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: As above; `&mut self` excludes other references.
        unsafe { self.producer.end.own.payload_mut(self.producer.head, self.len) }
    }
}

/// A [`Loan`] without a lifetime, for callers that cannot keep a borrow of the producer, such as other languages.
/// Dropping it discards the message.
#[derive(Debug)]
pub struct DetachedLoan {
    epoch: u64,
    /// Position of the message.
    head: u64,
    len: usize,
}

impl DetachedLoan {
    /// Returns the number of bytes of the message.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if the message has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Messages that become visible together. Dropping it without [`Batch::commit`] discards all of them.
#[derive(Debug)]
pub struct Batch<'p> {
    producer: &'p mut Producer,
    /// Position of the next message. `messages` is the number of messages written.
    head: u64,
    messages: u64,
}

impl<'p> Batch<'p> {
    pub(super) fn new(producer: &'p mut Producer) -> Self {
        let head = producer.head;
        Self { producer, head, messages: 0 }
    }

    /// Returns room for one more message of `len` bytes, which must be written before the next call. Returns `None` if
    /// the ring has no room now; commit the batch in order to make progress.
    pub fn loan(&mut self, len: usize) -> Result<Option<&mut [u8]>> {
        if !self.producer.room(self.head, len, WaitPatience::None)? {
            return Ok(None);
        }
        let at = self.head;
        // If the ring has checksums, `commit` writes the header again, because the checksum is not known yet.
        let frame = crate::layout::Frame {
            len: len as u32,
            seq: self.producer.sent + self.messages,
            crc: None,
        };
        self.producer.end.own.write_header(at, frame.to_words());
        self.head += occupied(len as u64);
        self.messages += 1;
        // SAFETY: `room` has succeeded for `len`. The bytes are not committed, and the result borrows `self`.
        Ok(Some(unsafe { self.producer.end.own.payload_mut(at, len) }))
    }

    /// Returns the number of messages in the batch.
    pub fn len(&self) -> u64 {
        self.messages
    }

    /// Returns `true` if the batch contains no messages.
    pub fn is_empty(&self) -> bool {
        self.messages == 0
    }

    /// Makes all messages visible at once. Returns their number.
    pub fn commit(self) -> Result<u64> {
        if self.messages == 0 {
            return Ok(0);
        }
        self.producer.end.line.check_here()?;
        if self.producer.end.own.geometry.checksums {
            let mut at = self.producer.head;
            for seq in self.producer.sent..self.producer.sent + self.messages {
                let len = self.producer.end.own.frame_header(at)[0] as u32;
                let frame = self.producer.frame(len as usize, seq, at);
                self.producer.end.own.write_header(at, frame.to_words());
                at += occupied(u64::from(len));
            }
        }
        self.producer.commit(self.head, self.messages)?;
        Ok(self.messages)
    }
}

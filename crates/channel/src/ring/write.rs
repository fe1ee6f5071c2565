//! Messages being written: one in place, or several that are committed together.

use super::Producer;
use crate::error::Result;
use crate::layout::occupied;
use crate::shared::end::Patience;
use std::ops::{Deref, DerefMut};
use std::time::Instant;

impl Producer {
    /// Room for a message of `len` bytes, to be written in place; waits until there is room. The
    /// bytes begin at a multiple of 32 and hold whatever was there before.
    ///
    /// [`PeerDied`](crate::Error::PeerDied) or [`Closed`](crate::Error::Closed) if the consumer is gone, with the messages that it
    /// had released; [`TooLarge`](crate::Error::TooLarge) beyond [`Producer::largest`].
    pub fn loan(&mut self, len: usize) -> Result<Loan<'_>> {
        self.loan_until(len, None)
    }

    /// As [`Producer::loan`], for no longer than `deadline`; `None` is for ever.
    pub fn loan_until(&mut self, len: usize, deadline: Option<Instant>) -> Result<Loan<'_>> {
        self.room(self.head, len, Patience::Until(deadline))?;
        Ok(Loan::new(self, len))
    }

    /// As [`Producer::loan`]; `None` if there is no room now.
    pub fn try_loan(&mut self, len: usize) -> Result<Option<Loan<'_>>> {
        let room = self.room(self.head, len, Patience::None)?;
        Ok(room.then(|| Loan::new(self, len)))
    }

    /// Sends a copy of `message`; waits until there is room.
    pub fn send(&mut self, message: &[u8]) -> Result<()> {
        self.send_until(message, None)
    }

    /// As [`Producer::send`], for no longer than `deadline`; `None` is for ever.
    pub fn send_until(&mut self, message: &[u8], deadline: Option<Instant>) -> Result<()> {
        let mut loan = self.loan_until(message.len(), deadline)?;
        loan.copy_from_slice(message);
        loan.commit()
    }

    /// As [`Producer::send`]; false if there is no room now.
    pub fn try_send(&mut self, message: &[u8]) -> Result<bool> {
        let Some(mut loan) = self.try_loan(message.len())? else { return Ok(false) };
        loan.copy_from_slice(message);
        loan.commit()?;
        Ok(true)
    }

    /// Several messages that become visible at once, for the price of one.
    pub fn batch(&mut self) -> Batch<'_> {
        Batch::new(self)
    }
}

/// Room for one message. The consumer sees it after [`Loan::commit`]; dropped, it never was.
#[derive(Debug)]
pub struct Loan<'p> {
    producer: &'p mut Producer,
    len: usize,
}

impl<'p> Loan<'p> {
    /// `producer.room` must have said yes to `len`.
    pub(super) fn new(producer: &'p mut Producer, len: usize) -> Self {
        Self { producer, len }
    }

    /// Makes the message visible. [`crate::Error::Forked`] in a child made by fork meanwhile.
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
        // SAFETY: `room` was asked for len; not committed, so nobody else looks at it.
        unsafe { self.producer.end.own.payload(self.producer.head, self.len) }
    }
}

impl DerefMut for Loan<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and &mut self is the only way to it.
        unsafe { self.producer.end.own.payload_mut(self.producer.head, self.len) }
    }
}

/// Messages that become visible together. Dropped without [`Batch::commit`], none of them ever was.
#[derive(Debug)]
pub struct Batch<'p> {
    producer: &'p mut Producer,
    /// Where the next one begins, and how many there are.
    head: u64,
    messages: u64,
}

impl<'p> Batch<'p> {
    pub(super) fn new(producer: &'p mut Producer) -> Self {
        let head = producer.head;
        Self { producer, head, messages: 0 }
    }

    /// Room for one more message of `len` bytes, to be written before the next call. `None` if the
    /// ring has no room for it now: commit, and it will come.
    pub fn loan(&mut self, len: usize) -> Result<Option<&mut [u8]>> {
        if !self.producer.room(self.head, len, Patience::None)? {
            return Ok(None);
        }
        let at = self.head;
        // The checksum is not known yet: `commit` writes the header once more if there is one.
        let frame = crate::layout::Frame {
            len: len as u32,
            seq: self.producer.sent + self.messages,
            crc: None,
        };
        self.producer.end.own.write_header(at, frame.to_words());
        self.head += occupied(len as u64);
        self.messages += 1;
        // SAFETY: `room` said yes to len; not committed, and borrowed from &mut self.
        Ok(Some(unsafe { self.producer.end.own.payload_mut(at, len) }))
    }

    /// Messages in it.
    pub fn len(&self) -> u64 {
        self.messages
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.messages == 0
    }

    /// Makes all of them visible at once; returns how many.
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

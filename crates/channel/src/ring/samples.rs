//! Receives several messages at once.

use super::consumer::{Consumer, head_of};
use super::held::Held;
use crate::error::Result;
use crate::layout::occupied;
use crate::shared::end::WaitPatience;
use std::time::Instant;

impl Consumer {
    /// Waits for at least one message, and returns all committed ones. Dropping the result releases them together,
    /// which costs as much as releasing one.
    pub fn receive_all(&mut self) -> Result<Samples<'_>> {
        self.receive_all_until(None)
    }

    /// Like [`Consumer::receive_all`], but waits until `deadline` at most; `None` waits without limit.
    pub fn receive_all_until(&mut self, deadline: Option<Instant>) -> Result<Samples<'_>> {
        self.data(WaitPatience::Until(deadline))?;
        // Load the head again, to include messages that have arrived since it was last loaded.
        self.head = head_of(&self.end, self.head, self.tail).map_err(|error| self.broke(error))?;
        Ok(Samples::new(self))
    }
}

/// The available messages, in order. Dropping it releases the messages that [`Samples::next`] has returned. The others
/// stay available.
#[derive(Debug)]
pub struct Samples<'c> {
    consumer: &'c mut Consumer,
    /// Position of the next message. `shown` is the number of messages returned.
    at: u64,
    shown: u64,
}

impl<'c> Samples<'c> {
    pub(super) fn new(consumer: &'c mut Consumer) -> Self {
        let at = consumer.tail;
        Self { consumer, at, shown: 0 }
    }

    /// Returns the next message; `None` after the last.
    #[allow(
        clippy::should_implement_trait,
        reason = "an iterator's items could not borrow from it"
    )]
    pub fn next(&mut self) -> Result<Option<&[u8]>> {
        if self.at >= self.consumer.head {
            return Ok(None);
        }
        let (at, seq) = (self.at, self.consumer.received + self.shown);
        let len = self.consumer.open_frame(at, seq)?;
        self.at += occupied(len as u64);
        self.shown += 1;
        Ok(Some(self.consumer.payload(at, len)))
    }
}

impl Samples<'_> {
    /// Returns the next message as a [`Held`]; `None` after the last. It stays valid when the others are released.
    pub fn hold(&mut self) -> Result<Option<Held>> {
        let at = self.at;
        let Some(len) = self.next()?.map(<[u8]>::len) else { return Ok(None) };
        Ok(Some(self.consumer.keep(at, len)))
    }
}

impl Drop for Samples<'_> {
    fn drop(&mut self) {
        if self.shown > 0 {
            self.consumer.release(self.at, self.shown);
        }
    }
}

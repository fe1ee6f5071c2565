//! Several messages received at once.

use super::consumer::{Consumer, head_of};
use super::held::Held;
use crate::error::Result;
use crate::layout::occupied;
use crate::shared::end::Patience;
use std::time::Instant;

impl Consumer {
    /// Everything that is committed, at least one message; waits for it. Released at once when
    /// dropped, for the price of one.
    pub fn receive_all(&mut self) -> Result<Samples<'_>> {
        self.receive_all_until(None)
    }

    /// As [`Consumer::receive_all`], for no longer than `deadline`; `None` is for ever.
    pub fn receive_all_until(&mut self, deadline: Option<Instant>) -> Result<Samples<'_>> {
        self.data(Patience::Until(deadline))?;
        // What came since the last look belongs to it.
        self.head = head_of(&self.end, self.head, self.tail).map_err(|error| self.broke(error))?;
        Ok(Samples::new(self))
    }
}

/// The messages that were there, one after the other. Dropping it releases those that
/// [`Samples::next`] has shown; the others stay.
#[derive(Debug)]
pub struct Samples<'c> {
    consumer: &'c mut Consumer,
    /// Where the next one begins, and how many have been shown.
    at: u64,
    shown: u64,
}

impl<'c> Samples<'c> {
    pub(super) fn new(consumer: &'c mut Consumer) -> Self {
        let at = consumer.tail;
        Self { consumer, at, shown: 0 }
    }

    /// The next message; `None` after the last.
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
    /// The next message, to be kept when the others are released; `None` after the last.
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

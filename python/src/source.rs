//! The source of a receiving end: a consumer of a channel, or a subscriber of a broadcast.

use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;
use thalweg_channel::{Consumer, Error, Held, Link, Notice, Options, Sample, Subscription};

use crate::read::ReceivedPiece;

pub enum ReceiveSource {
    Ring(Box<Consumer>),
    Broadcast(Box<Subscription>),
}

/// The next message of either source.
pub enum NextMessage<'s> {
    Sample(Sample<'s>),
    Notice(Notice<'s>),
}

impl ReceiveSource {
    pub fn open(
        link: Link,
        options: &Options,
        is_broadcast: bool,
        until: Instant,
    ) -> Result<Self, Error> {
        if is_broadcast {
            let opened = Subscription::open_until(link, options, Some(until))?;
            return Ok(Self::Broadcast(Box::new(opened)));
        }
        Ok(Self::Ring(Box::new(Consumer::open_until(link, options, Some(until))?)))
    }

    /// Waits for the next message.
    pub fn receive(&mut self, until: Instant) -> Result<NextMessage<'_>, Error> {
        Ok(match self {
            Self::Ring(ring) => NextMessage::Sample(ring.receive_until(Some(until))?),
            Self::Broadcast(seat) => NextMessage::Notice(seat.receive_until(Some(until))?),
        })
    }

    pub fn try_next(&mut self) -> Result<Option<NextMessage<'_>>, Error> {
        Ok(match self {
            Self::Ring(ring) => ring.try_receive()?.map(NextMessage::Sample),
            Self::Broadcast(seat) => seat.try_receive()?.map(NextMessage::Notice),
        })
    }

    /// Returns `true` if the sender waits for messages that are held here.
    pub fn holds_up(&mut self) -> Result<bool, Error> {
        match self {
            Self::Ring(ring) => ring.holds_up(),
            Self::Broadcast(seat) => seat.holds_up(),
        }
    }

    pub fn held(&self) -> usize {
        match self {
            Self::Ring(ring) => ring.held(),
            Self::Broadcast(seat) => seat.held(),
        }
    }

    pub fn arm(&mut self) -> Result<bool, Error> {
        match self {
            Self::Ring(ring) => ring.arm(),
            Self::Broadcast(seat) => seat.arm(),
        }
    }

    pub fn received(&self) -> u64 {
        match self {
            Self::Ring(ring) => ring.received(),
            Self::Broadcast(seat) => seat.received(),
        }
    }

    /// Returns the number of messages that were dropped for this end.
    pub fn missed(&self) -> u64 {
        match self {
            Self::Ring(_) => 0,
            Self::Broadcast(seat) => seat.missed(),
        }
    }

    /// Returns the sending process.
    pub fn peer(&self) -> u32 {
        match self {
            Self::Ring(ring) => ring.peer().pid,
            Self::Broadcast(seat) => seat.peer().pid,
        }
    }
}

impl AsFd for ReceiveSource {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Ring(ring) => ring.as_fd(),
            Self::Broadcast(seat) => seat.as_fd(),
        }
    }
}

impl Deref for NextMessage<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Sample(sample) => sample,
            Self::Notice(notice) => notice,
        }
    }
}

impl ReceivedPiece for NextMessage<'_> {
    fn largest(&self) -> usize {
        match self {
            Self::Sample(sample) => sample.largest(),
            Self::Notice(notice) => notice.largest(),
        }
    }

    fn hold(self) -> Held {
        match self {
            Self::Sample(sample) => sample.hold(),
            Self::Notice(notice) => notice.hold(),
        }
    }
}

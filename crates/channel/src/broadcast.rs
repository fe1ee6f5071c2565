//! One producer, any number of subscribers. Each subscriber has its own ring and gets its own copy of each message.
//! With a single shared ring, one copy would suffice, but a slow or hostile subscriber could block or disturb all
//! others.

use crate::error::{Error, Result};
use crate::link::{Link, Peer};
use crate::ring::{Consumer, Held, Options, Producer, Sample};
use rustix::fd::{AsFd, BorrowedFd};
use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

/// Size in bytes of the message number, which precedes each message in a ring.
const NUMBER: usize = 8;

/// Behavior if a subscriber's ring is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slow {
    /// Publishing waits until the ring has room. A stopped subscriber blocks all others.
    Wait,
    /// The producer's process queues messages for this subscriber. The next call of [`Broadcast::publish`] or
    /// [`Broadcast::push_backlog`] moves them to the ring. If more than `backlog` messages are queued, the oldest
    /// queued one is dropped, and both sides count it. Messages already in the ring are never dropped.
    DropOldest {
        /// Maximum number of messages queued per subscriber; at least 1.
        backlog: usize,
    },
}

/// A subscriber that was removed, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The number returned by [`Broadcast::add`].
    pub subscriber: u64,
    /// [`Error::Closed`], [`Error::PeerDied`], or the error that made its ring unusable.
    pub error: Error,
    /// Number of messages that this subscriber did not get: those dropped before, and those still queued when it left.
    pub dropped: u64,
}

/// The sending side of a broadcast.
#[derive(Debug)]
pub struct Broadcast {
    slow: Slow,
    seats: Vec<SubscriberSeat>,
    added: u64,
    published: u64,
    departed: Vec<Departure>,
}

#[derive(Debug)]
struct SubscriberSeat {
    id: u64,
    producer: Producer,
    backlog: VecDeque<(u64, Arc<[u8]>)>,
    dropped: u64,
}

impl Broadcast {
    /// Creates a broadcast without subscribers.
    pub fn new(slow: Slow) -> Self {
        Self { slow, seats: Vec::new(), added: 0, published: 0, departed: Vec::new() }
    }

    /// Adds the process that opens a [`Subscription`] at the other end of the link. The subscription receives all
    /// messages that are published from now on. Returns the subscriber's number.
    pub fn add(&mut self, link: Link, options: &Options, deadline: Option<Instant>) -> Result<u64> {
        Ok(self.admit(Producer::open_until(link, options, deadline)?))
    }

    /// Like [`Broadcast::add`], for a subscriber with an open ring.
    pub fn admit(&mut self, producer: Producer) -> u64 {
        let id = self.added;
        self.added += 1;
        self.seats.push(SubscriberSeat { id, producer, backlog: VecDeque::new(), dropped: 0 });
        id
    }

    /// Returns the number of subscribers. A subscriber that has left counts until a call detects this.
    pub fn subscribers(&self) -> usize {
        self.seats.len()
    }

    /// Returns the number of messages published.
    pub fn published(&self) -> u64 {
        self.published
    }

    /// Returns the number of messages dropped for a subscriber; `None` if it was removed.
    pub fn dropped(&self, subscriber: u64) -> Option<u64> {
        self.seats.iter().find(|seat| seat.id == subscriber).map(|seat| seat.dropped)
    }

    /// Returns the subscribers that were removed since the last call.
    pub fn take_departed(&mut self) -> Vec<Departure> {
        std::mem::take(&mut self.departed)
    }

    /// Sends a message to every subscriber. Without subscribers, the message is still counted as
    /// published.
    pub fn publish(&mut self, message: &[u8]) -> Result<()> {
        self.publish_until(message, None)
    }

    /// Like [`Broadcast::publish`], but waits until `deadline` at most. Only [`Slow::Wait`] waits at all. Returns
    /// [`Error::TooLarge`] if the message exceeds the capacity of a subscriber's ring. After this error or
    /// [`Error::Timeout`], no subscriber has received the message.
    pub fn publish_until(&mut self, message: &[u8], deadline: Option<Instant>) -> Result<()> {
        self.check_len(message.len())?;
        if self.slow == Slow::Wait {
            // First reserve room in every ring, then send. Only this producer writes to the rings, so the room stays
            // available. Therefore a timeout never leaves the message with only some of the subscribers.
            let len = message.len() + NUMBER;
            self.each(|seat| seat.producer.loan_until(len, deadline).map(drop))?;
        }
        let (number, slow) = (self.published, self.slow);
        self.published += 1;
        let mut kept = None;
        self.each(|seat| match slow {
            Slow::Wait => seat.try_send(number, message).map(drop),
            Slow::DropOldest { backlog } => {
                seat.push_backlog()?;
                if !seat.backlog.is_empty() || !seat.try_send(number, message)? {
                    let kept = kept.get_or_insert_with(|| Arc::from(message));
                    seat.keep(number, kept, backlog.max(1));
                }
                Ok(())
            }
        })
    }

    /// Prepares for polling in an event loop, after [`Slow::Wait`] has timed out. If it returns `Ok(true)`, poll
    /// [`Broadcast::descriptors`] for reading, and publish again when one is ready. If it returns `Ok(false)`, every
    /// subscriber has room for `len` bytes. Returns [`Error::TooLarge`] like [`Broadcast::publish_until`].
    pub fn arm(&mut self, len: usize) -> Result<bool> {
        self.check_len(len)?;
        let mut waits = false;
        self.each(|seat| {
            waits |= seat.producer.arm(len + NUMBER)?;
            Ok(())
        })?;
        Ok(waits)
    }

    /// Returns the descriptors to poll after [`Broadcast::arm`]: the link of every subscriber.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.seats.iter().map(|seat| seat.producer.as_fd())
    }

    fn check_len(&self, len: usize) -> Result<()> {
        match self.seats.iter().map(|seat| seat.producer.largest()).min() {
            Some(most) if len + NUMBER > most => {
                let (len, most) = (len as u64, most.saturating_sub(NUMBER) as u64);
                Err(Error::TooLarge { len, most, instead: None })
            }
            _ => Ok(()),
        }
    }

    /// Moves queued messages to the rings while there is room. Returns the number of messages that are still queued.
    pub fn push_backlog(&mut self) -> Result<usize> {
        self.each(SubscriberSeat::push_backlog)?;
        Ok(self.seats.iter().map(|seat| seat.backlog.len()).sum())
    }

    /// Calls `act` for every subscriber. Removes and records a subscriber for which `act` fails, and continues with the
    /// others. Only [`Error::Timeout`] and [`Error::Forked`] are returned to the caller.
    fn each(&mut self, mut act: impl FnMut(&mut SubscriberSeat) -> Result<()>) -> Result<()> {
        let mut at = 0;
        while let Some(seat) = self.seats.get_mut(at) {
            match act(seat) {
                Ok(()) => at += 1,
                Err(error @ (Error::Timeout | Error::Forked { .. })) => return Err(error),
                Err(error) => {
                    let seat = self.seats.remove(at);
                    let dropped = seat.dropped + seat.backlog.len() as u64;
                    self.departed.push(Departure { subscriber: seat.id, error, dropped });
                }
            }
        }
        Ok(())
    }
}

impl SubscriberSeat {
    fn try_send(&mut self, number: u64, message: &[u8]) -> Result<bool> {
        let Some(mut loan) = self.producer.try_loan(message.len() + NUMBER)? else {
            return Ok(false);
        };
        loan[..NUMBER].copy_from_slice(&number.to_le_bytes());
        loan[NUMBER..].copy_from_slice(message);
        loan.commit()?;
        Ok(true)
    }

    fn push_backlog(&mut self) -> Result<()> {
        while let Some((number, message)) = self.backlog.pop_front() {
            if !self.try_send(number, &message)? {
                self.backlog.push_front((number, message));
                break;
            }
        }
        Ok(())
    }

    fn keep(&mut self, number: u64, message: &Arc<[u8]>, most: usize) {
        self.backlog.push_back((number, message.clone()));
        while self.backlog.len() > most {
            self.backlog.pop_front();
            self.dropped += 1;
        }
    }
}

/// The receiving side of a broadcast.
#[derive(Debug)]
pub struct Subscription {
    consumer: Consumer,
    /// The last message received. It shows when a message that was not released is received again, so that the messages
    /// dropped before it are not counted twice.
    last: Option<Last>,
    missed: u64,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    /// Number of messages received before this one.
    before: u64,
    number: u64,
    /// Number of messages dropped between the previous received message and this one.
    missed: u64,
}

impl Subscription {
    /// Subscribes to the [`Broadcast`] at the other end of the link.
    pub fn open(link: Link, options: &Options) -> Result<Self> {
        Self::open_until(link, options, None)
    }

    /// Like [`Subscription::open`], but waits until `deadline` at most; `None` waits without limit.
    pub fn open_until(link: Link, options: &Options, deadline: Option<Instant>) -> Result<Self> {
        let consumer = Consumer::open_until(link, options, deadline)?;
        Ok(Self { consumer, last: None, missed: 0 })
    }

    /// Returns the number of messages dropped since the first received one.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Returns the number of messages received. Held messages count as received.
    pub fn received(&self) -> u64 {
        self.consumer.received()
    }

    /// Returns the number of messages currently held, see [`Notice::hold`].
    pub fn held(&self) -> usize {
        self.consumer.held()
    }

    /// See [`Consumer::holds_up`].
    pub fn holds_up(&mut self) -> Result<bool> {
        self.consumer.holds_up()
    }

    /// Returns the publishing process.
    pub fn peer(&self) -> &Peer {
        self.consumer.peer()
    }

    /// See [`Consumer::arm`].
    pub fn arm(&mut self) -> Result<bool> {
        self.consumer.arm()
    }

    /// Waits for the next message and returns it. Errors: see [`Consumer::receive`].
    pub fn receive(&mut self) -> Result<Notice<'_>> {
        self.receive_until(None)
    }

    /// Like [`Subscription::receive`], but waits until `deadline` at most; `None` waits without limit.
    pub fn receive_until(&mut self, deadline: Option<Instant>) -> Result<Notice<'_>> {
        let before = self.consumer.received();
        let sample = self.consumer.receive_until(deadline)?;
        noticed(sample, before, &mut self.last, &mut self.missed)
    }

    /// Like [`Subscription::receive`], but returns `None` if no message is available now.
    pub fn try_receive(&mut self) -> Result<Option<Notice<'_>>> {
        let before = self.consumer.received();
        let Some(sample) = self.consumer.try_receive()? else { return Ok(None) };
        noticed(sample, before, &mut self.last, &mut self.missed).map(Some)
    }
}

impl AsFd for Subscription {
    /// Returns the descriptor to poll; see [`Consumer::arm`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.consumer.as_fd()
    }
}

/// Reads the message number at the start of `sample`. `before` is the number of messages received before it.
fn noticed<'s>(
    sample: Sample<'s>,
    before: u64,
    last: &mut Option<Last>,
    all_missed: &mut u64,
) -> Result<Notice<'s>> {
    let Some((number, _)) = sample.split_first_chunk::<NUMBER>() else {
        return Err(Error::corrupt("broadcast message without a number"));
    };
    let number = u64::from_le_bytes(*number);
    let missed = match *last {
        Some(last) if last.before == before && last.number == number => {
            return Ok(Notice { sample, number, missed: last.missed });
        }
        Some(last) => last.number.checked_add(1).and_then(|due| number.checked_sub(due)),
        None => Some(0),
    };
    let Some(missed) = missed else {
        return Err(Error::corrupt(format!("broadcast message {number} out of order")));
    };
    *all_missed = all_missed.saturating_add(missed);
    *last = Some(Last { before, number, missed });
    Ok(Notice { sample, number, missed })
}

/// A message of a broadcast. Dropping it releases its room in the ring.
#[derive(Debug)]
pub struct Notice<'s> {
    sample: Sample<'s>,
    number: u64,
    missed: u64,
}

impl Notice<'_> {
    /// Returns the number of this message among all published messages.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the number of messages dropped between the previous received message and this one.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Returns the size in bytes of the largest message that the ring can hold.
    pub fn largest(&self) -> usize {
        self.sample.largest().saturating_sub(NUMBER)
    }

    /// Keeps the message while later ones are received; see [`Sample::hold`].
    pub fn hold(self) -> Held {
        self.sample.hold().skip(NUMBER)
    }
}

impl Deref for Notice<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.sample[NUMBER..]
    }
}

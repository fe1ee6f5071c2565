//! One producer, any number of subscribers: a ring for each, and a copy into each. One shared ring
//! would copy once, but its slowest or most hostile reader would be everybody's.

use crate::error::{Error, Result};
use crate::link::{Link, Peer};
use crate::ring::{Consumer, Held, Options, Producer, Sample};
use rustix::fd::{AsFd, BorrowedFd};
use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

/// Bytes before each message: its number.
const NUMBER: usize = 8;

/// What happens when a subscriber's ring is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slow {
    /// Everybody waits for it. A subscriber that is stopped stops all.
    Wait,
    /// Messages for it queue up here, and move on with the next call. When there are more than so
    /// many, the oldest of them is dropped and counted, here and by the subscriber. What is in its
    /// ring already stays.
    DropOldest {
        /// Messages kept for each subscriber; at least 1.
        backlog: usize,
    },
}

/// A subscriber that is gone, and how it went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departure {
    /// As [`Broadcast::add`] gave it.
    pub subscriber: u64,
    /// [`Error::Closed`], [`Error::PeerDied`], or what was wrong with it.
    pub error: Error,
    /// Messages dropped for it, those in the backlog included.
    pub dropped: u64,
}

/// The sending side.
#[derive(Debug)]
pub struct Broadcast {
    slow: Slow,
    seats: Vec<Seat>,
    added: u64,
    published: u64,
    departed: Vec<Departure>,
}

#[derive(Debug)]
struct Seat {
    id: u64,
    producer: Producer,
    backlog: VecDeque<(u64, Arc<[u8]>)>,
    dropped: u64,
}

impl Broadcast {
    /// Without subscribers yet.
    pub fn new(slow: Slow) -> Self {
        Self { slow, seats: Vec::new(), added: 0, published: 0, departed: Vec::new() }
    }

    /// Takes in the process that opens a [`Subscription`] at the other end of the link; it receives what is
    /// published from now on. Returns its number.
    pub fn add(&mut self, link: Link, options: &Options, deadline: Option<Instant>) -> Result<u64> {
        Ok(self.admit(Producer::open_until(link, options, deadline)?))
    }

    /// As [`Broadcast::add`], of a subscriber whose ring is open already.
    pub fn admit(&mut self, producer: Producer) -> u64 {
        let id = self.added;
        self.added += 1;
        self.seats.push(Seat { id, producer, backlog: VecDeque::new(), dropped: 0 });
        id
    }

    /// Subscribers at present, as far as known.
    pub fn subscribers(&self) -> usize {
        self.seats.len()
    }

    /// Messages published.
    pub fn published(&self) -> u64 {
        self.published
    }

    /// Messages dropped for a subscriber; `None` if it is gone.
    pub fn dropped(&self, subscriber: u64) -> Option<u64> {
        self.seats.iter().find(|seat| seat.id == subscriber).map(|seat| seat.dropped)
    }

    /// The subscribers that have gone since the last call.
    pub fn take_departed(&mut self) -> Vec<Departure> {
        std::mem::take(&mut self.departed)
    }

    /// Sends a message to every subscriber. Without subscribers it is published all the same.
    pub fn publish(&mut self, message: &[u8]) -> Result<()> {
        self.publish_until(message, None)
    }

    /// As [`Broadcast::publish`]; after [`Error::Timeout`] nobody has it. Only [`Slow::Wait`] waits.
    /// [`Error::TooLarge`] if a subscriber's ring could never take it; then nobody has it either.
    pub fn publish_until(&mut self, message: &[u8], deadline: Option<Instant>) -> Result<()> {
        self.check_len(message.len())?;
        if self.slow == Slow::Wait {
            // First room everywhere, then the message: room that was there stays, for nobody else
            // sends, and a deadline leaves nobody with half of it.
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

    /// For an event loop, where [`Slow::Wait`] has timed out: after `Ok(true)`, poll
    /// [`Broadcast::descriptors`] for reading; once one is ready, publish again. `Ok(false)`: every
    /// subscriber has room for `len` bytes. [`Error::TooLarge`] as of [`Broadcast::publish_until`].
    pub fn arm(&mut self, len: usize) -> Result<bool> {
        self.check_len(len)?;
        let mut waits = false;
        self.each(|seat| {
            waits |= seat.producer.arm(len + NUMBER)?;
            Ok(())
        })?;
        Ok(waits)
    }

    /// What to poll after [`Broadcast::arm`]: the link of every subscriber.
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

    /// Moves what is queued here on, as far as there is room; returns how many are left.
    pub fn push_backlog(&mut self) -> Result<usize> {
        self.each(Seat::push_backlog)?;
        Ok(self.seats.iter().map(|seat| seat.backlog.len()).sum())
    }

    /// Does something for every seat. One that turns out to be gone or broken departs, and the others go
    /// on; a deadline or a fork is the caller's affair.
    fn each(&mut self, mut act: impl FnMut(&mut Seat) -> Result<()>) -> Result<()> {
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

impl Seat {
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

/// The receiving side: one of the subscribers.
#[derive(Debug)]
pub struct Subscription {
    consumer: Consumer,
    /// The message that was looked at last; it comes again if it was not released.
    last: Option<Last>,
    missed: u64,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    /// Messages received before it.
    before: u64,
    number: u64,
    /// Messages dropped just before it.
    missed: u64,
}

impl Subscription {
    /// Subscribes to the [`Broadcast`] at the other end of the link.
    pub fn open(link: Link, options: &Options) -> Result<Self> {
        Self::open_until(link, options, None)
    }

    /// As [`Subscription::open`], for no longer than `deadline`; `None` is for ever.
    pub fn open_until(link: Link, options: &Options, deadline: Option<Instant>) -> Result<Self> {
        let consumer = Consumer::open_until(link, options, deadline)?;
        Ok(Self { consumer, last: None, missed: 0 })
    }

    /// Messages that were dropped between those received.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Messages received, and released or held.
    pub fn received(&self) -> u64 {
        self.consumer.received()
    }

    /// Messages that are held now, see [`Notice::hold`].
    pub fn held(&self) -> usize {
        self.consumer.held()
    }

    /// As [`Consumer::holds_up`].
    pub fn holds_up(&mut self) -> Result<bool> {
        self.consumer.holds_up()
    }

    /// The process that publishes.
    pub fn peer(&self) -> &Peer {
        self.consumer.peer()
    }

    /// As [`Consumer::arm`].
    pub fn arm(&mut self) -> Result<bool> {
        self.consumer.arm()
    }

    /// The next message; waits for it. Errors as of [`Consumer::receive`].
    pub fn receive(&mut self) -> Result<Notice<'_>> {
        self.receive_until(None)
    }

    /// As [`Subscription::receive`], for no longer than `deadline`; `None` is for ever.
    pub fn receive_until(&mut self, deadline: Option<Instant>) -> Result<Notice<'_>> {
        let before = self.consumer.received();
        let sample = self.consumer.receive_until(deadline)?;
        noticed(sample, before, (&mut self.last, &mut self.missed))
    }

    /// As [`Subscription::receive`]; `None` if there is no message now.
    pub fn try_receive(&mut self) -> Result<Option<Notice<'_>>> {
        let before = self.consumer.received();
        let Some(sample) = self.consumer.try_receive()? else { return Ok(None) };
        noticed(sample, before, (&mut self.last, &mut self.missed)).map(Some)
    }
}

impl AsFd for Subscription {
    /// As of a [`Consumer`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.consumer.as_fd()
    }
}

/// Reads the number of a message, before which so many were received.
fn noticed<'s>(
    sample: Sample<'s>,
    before: u64,
    (last, all_missed): (&mut Option<Last>, &mut u64),
) -> Result<Notice<'s>> {
    let Some((number, _)) = sample.split_first_chunk::<NUMBER>() else {
        return Err(Error::corrupt("a message without its number in a broadcast"));
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
        return Err(Error::corrupt(format!("message {number} of a broadcast comes late")));
    };
    *all_missed = all_missed.saturating_add(missed);
    *last = Some(Last { before, number, missed });
    Ok(Notice { sample, number, missed })
}

/// A message of a broadcast. Dropping it releases it.
#[derive(Debug)]
pub struct Notice<'s> {
    sample: Sample<'s>,
    number: u64,
    missed: u64,
}

impl Notice<'_> {
    /// Its number among all that were published.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Messages that were dropped just before it.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// The largest message that its ring can hold.
    pub fn largest(&self) -> usize {
        self.sample.largest().saturating_sub(NUMBER)
    }

    /// Keeps the message while others are received, see [`Sample::hold`].
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

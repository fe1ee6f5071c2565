//! Any number of producers and one consumer. Each producer has its own ring, and the consumer polls the rings in turn.
//! A producer that dies in the middle of a message or violates the protocol makes only its own ring unusable. Messages
//! of different rings have no defined order.

use crate::error::{Error, Result};
use crate::link::Link;
use crate::ring::{Consumer, Options, Sample};
use crate::shared::wait::spin::{SpinTurn, Spinner, is_alone_with};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd};
use std::time::Instant;
use thalweg_sys::Errno;

/// The receiving side. Each sending side is an ordinary [`crate::Producer`].
#[derive(Debug)]
pub struct Mpsc {
    options: Options,
    sources: Vec<MpscSource>,
    added: u64,
    /// Index of the ring to check first.
    next: usize,
    received: u64,
    /// `true` if this process and all producers share a single processor.
    alone: bool,
}

#[derive(Debug)]
struct MpscSource {
    id: u64,
    consumer: Consumer,
}

/// A message, or the departure of a producer.
#[derive(Debug)]
pub enum Arrival<'m> {
    /// A message.
    Message {
        /// Number of the producer, as returned by [`Mpsc::add`].
        from: u64,
        /// The received message. Dropping it releases its room in the ring.
        sample: Sample<'m>,
    },
    /// A producer has left and was removed. Everything that it had committed was delivered before.
    Left {
        /// Number of the producer, as returned by [`Mpsc::add`].
        from: u64,
        /// [`Error::Closed`], [`Error::PeerDied`], or the error that made its ring unusable.
        error: Error,
    },
}

impl Mpsc {
    /// Creates a consumer without producers. The options apply to each ring.
    pub fn new(options: &Options) -> Self {
        let options = *options;
        Self { options, sources: Vec::new(), added: 0, next: 0, received: 0, alone: true }
    }

    /// Adds the process that opens a [`crate::Producer`] at the other end of the link. Returns the
    /// producer's number.
    pub fn add(&mut self, link: Link, deadline: Option<Instant>) -> Result<u64> {
        Ok(self.admit(Consumer::open_until(link, &self.options, deadline)?))
    }

    /// Like [`Mpsc::add`], for a producer with an open ring.
    pub fn admit(&mut self, consumer: Consumer) -> u64 {
        // Polling is useful as soon as one producer runs on another processor.
        self.alone &= is_alone_with(consumer.peer());
        let id = self.added;
        self.added += 1;
        self.sources.push(MpscSource { id, consumer });
        id
    }

    /// Returns the number of producers. A producer that has left counts until a call reports its departure.
    pub fn producers(&self) -> usize {
        self.sources.len()
    }

    /// Waits for the next message of any producer, or for the departure of one. Returns [`Error::Closed`] with the
    /// number of messages received if there are no producers. Returns [`Error::Corrupt`] for an invalid message; the
    /// next call then reports [`Arrival::Left`] for its producer.
    pub fn receive(&mut self) -> Result<Arrival<'_>> {
        self.receive_until(None)
    }

    /// Like [`Mpsc::receive`], but waits until `deadline` at most; `None` waits without limit.
    pub fn receive_until(&mut self, deadline: Option<Instant>) -> Result<Arrival<'_>> {
        let mut spinner = Spinner::new(self.options.wait, self.alone);
        let (at, ended) = loop {
            if self.sources.is_empty() {
                return Err(Error::Closed { delivered: self.received });
            }
            if let Some(found) = self.scan()? {
                break found;
            }
            match spinner.turn() {
                SpinTurn::Look => {}
                turn => {
                    if turn == SpinTurn::Doubt {
                        self.sources.iter_mut().for_each(|source| source.consumer.recheck_peer());
                    }
                    let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
                    if left.is_some_and(|left| left.is_zero()) {
                        return Err(Error::Timeout);
                    }
                    if turn == SpinTurn::Sleep {
                        // A timeout that does not fit into a `timespec` means no limit.
                        self.sleep(left.and_then(|left| Timespec::try_from(left).ok()))?;
                    }
                }
            }
        };
        if let Some(error) = ended {
            let source = self.sources.remove(at);
            return Ok(Arrival::Left { from: source.id, error });
        }
        self.next = at + 1;
        let source = &mut self.sources[at];
        // This does not wait: `scan` found the ring ready, and no other thread receives from it. If the message is
        // corrupt, the next call finds the ring unusable and reports the departure of its producer.
        let sample = source.consumer.receive()?;
        self.received += 1;
        Ok(Arrival::Message { from: source.id, sample })
    }

    /// Returns the first ring, from `next` on, that has a message or is at its end.
    fn scan(&mut self) -> Result<Option<(usize, Option<Error>)>> {
        for step in 0..self.sources.len() {
            let at = (self.next + step) % self.sources.len();
            match self.sources[at].consumer.is_ready() {
                Ok(false) => {}
                Ok(true) => return Ok(Some((at, None))),
                Err(error @ Error::Forked { .. }) => return Err(error),
                Err(error) => return Ok(Some((at, Some(error)))),
            }
        }
        Ok(None)
    }

    /// Prepares for polling in an event loop. If it returns `true`, poll [`Mpsc::descriptors`] for reading, and receive
    /// when one is ready. If it returns `false`, a message or departure is already available, or there are no
    /// producers.
    pub fn arm(&mut self) -> bool {
        // An error counts as an event, which the next `scan` finds again and handles.
        let is_quiet = |source: &mut MpscSource| source.consumer.arm().unwrap_or(false);
        !self.sources.is_empty() && self.sources.iter_mut().all(is_quiet)
    }

    /// Returns the descriptors to poll after [`Mpsc::arm`]: every link, and the pidfd of every producer that has one.
    /// They change when a producer is added or leaves.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sources.iter().flat_map(|MpscSource { consumer, .. }| {
            let process = consumer.peer().pidfd.as_ref().map(AsFd::as_fd);
            std::iter::once(consumer.as_fd()).chain(process)
        })
    }

    /// Polls every descriptor, unless an event is already available.
    fn sleep(&mut self, limit: Option<Timespec>) -> Result<()> {
        if !self.arm() {
            return Ok(());
        }
        let watched = self.descriptors().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let mut watched: Vec<_> = watched.collect();
        match poll(&mut watched, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(Error::System { call: "poll", errno }),
        }
    }
}

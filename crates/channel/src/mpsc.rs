//! Any number of producers, one consumer: a ring for each, looked at in turn, so that a producer
//! that dies or lies in mid-message harms its own ring only. There is no order between rings.

use crate::error::{Error, Result};
use crate::link::Link;
use crate::ring::{Consumer, Options, Sample};
use crate::shared::wait::spin::{Spinner, Turn, is_alone_with};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd};
use std::time::Instant;
use thalweg_sys::Errno;

/// The receiving side. The sending sides are plain [`crate::Producer`]s.
#[derive(Debug)]
pub struct Mpsc {
    options: Options,
    sources: Vec<Source>,
    added: u64,
    /// Whose turn it is.
    next: usize,
    received: u64,
    /// We and every producer have one processor between us.
    alone: bool,
}

#[derive(Debug)]
struct Source {
    id: u64,
    consumer: Consumer,
}

/// What came.
#[derive(Debug)]
pub enum Arrival<'m> {
    /// A message.
    Message {
        /// Whose, as [`Mpsc::add`] gave it.
        from: u64,
        /// Dropping it releases it.
        sample: Sample<'m>,
    },
    /// A producer is gone, after everything it had committed; it was taken off the list.
    Left {
        /// Whose, as [`Mpsc::add`] gave it.
        from: u64,
        /// [`Error::Closed`], [`Error::PeerDied`], or what was wrong with it.
        error: Error,
    },
}

impl Mpsc {
    /// Without producers yet. The options are for each ring.
    pub fn new(options: &Options) -> Self {
        let options = *options;
        Self { options, sources: Vec::new(), added: 0, next: 0, received: 0, alone: true }
    }

    /// Takes in the process that opens a [`crate::Producer`] at the other end of the link. Returns its
    /// number.
    pub fn add(&mut self, link: Link, deadline: Option<Instant>) -> Result<u64> {
        Ok(self.admit(Consumer::open_until(link, &self.options, deadline)?))
    }

    /// As [`Mpsc::add`], of a producer whose ring is open already.
    pub fn admit(&mut self, consumer: Consumer) -> u64 {
        // One that runs beside us is enough to look for.
        self.alone &= is_alone_with(consumer.peer());
        let id = self.added;
        self.added += 1;
        self.sources.push(Source { id, consumer });
        id
    }

    /// Producers at present, as far as known.
    pub fn producers(&self) -> usize {
        self.sources.len()
    }

    /// The next message of any producer that has one, or the news that one is gone; waits for it.
    /// [`Error::Closed`] with the number of messages received when there is no producer;
    /// [`Error::Corrupt`] for a message that lies, after which its producer has [`Arrival::Left`].
    pub fn receive(&mut self) -> Result<Arrival<'_>> {
        self.receive_until(None)
    }

    /// As [`Mpsc::receive`], for no longer than `deadline`; `None` is for ever.
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
                Turn::Look => {}
                turn => {
                    let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
                    if left.is_some_and(|left| left.is_zero()) {
                        return Err(Error::Timeout);
                    }
                    if turn == Turn::Sleep {
                        // Longer than the kernel can count is for ever.
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
        // Found ready, and no other thread takes from it. Its message may still be corrupt: the scan
        // of the next call then finds the ring broken, and says that it left.
        let sample = source.consumer.receive()?;
        self.received += 1;
        Ok(Arrival::Message { from: source.id, sample })
    }

    /// The first from `next` on that has a message or has ended.
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

    /// For an event loop: after true, poll [`Mpsc::descriptors`] for reading; once one is ready,
    /// receive. False: there is a message or news already, or there is no producer.
    pub fn arm(&mut self) -> bool {
        // An error here is found again by the scan, which knows what to do with it.
        let is_quiet = |source: &mut Source| source.consumer.arm().unwrap_or(false);
        !self.sources.is_empty() && self.sources.iter_mut().all(is_quiet)
    }

    /// What to poll after [`Mpsc::arm`]: every link, and every process where there is a pidfd. Others
    /// once a producer was added or has left.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sources.iter().flat_map(|Source { consumer, .. }| {
            let process = consumer.peer().pidfd.as_ref().map(AsFd::as_fd);
            std::iter::once(consumer.as_fd()).chain(process)
        })
    }

    /// Polls every descriptor, unless there is news already.
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

//! The writing end of a ring.

use super::Options;
use crate::error::{Error, Result};
use crate::layout::{ALIGN, FRAME_HEADER, Frame, Refusal, occupied};
use crate::link::{Link, Listener};
use crate::shared::end::{ChannelEnd, WaitPatience};
use crate::shared::handshake;
use crate::shared::stop::WaitStop;
use crate::shared::wait::{WaitLimits, steps};
use rustix::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
use thalweg_sys::peer;

/// The writing end of a ring. Dropping it closes the channel: the consumer receives everything committed, and then gets
/// [`Error::Closed`].
#[derive(Debug)]
pub struct Producer {
    pub(super) end: ChannelEnd,
    /// Number of bytes committed since the beginning; equals the published head.
    pub(super) head: u64,
    /// The consumer's tail as it was last read. The current tail may be larger.
    tail: u64,
    /// Number of messages committed.
    pub(super) sent: u64,
    broken: Option<Error>,
}

impl Producer {
    /// Offers a ring to the process at the other end of the link, and waits until it opens the consumer.
    pub fn open(link: Link, options: &Options) -> Result<Self> {
        Self::open_until(link, options, None)
    }

    /// Like [`Producer::open`], but waits until `deadline` at most; `None` waits without limit.
    pub fn open_until(link: Link, options: &Options, deadline: Option<Instant>) -> Result<Self> {
        Ok(Self::over(super::end(super::offer(link, options, deadline)?.finish(), options)?))
    }

    /// Waits for the first consumer, and then closes the listener. Refuses all other waiting processes, because the
    /// ring has its consumer. Ignores a process that fails in the handshake or exceeds [`Listener::PATIENCE`]. Returns
    /// [`Error::Timeout`] after the deadline, even if more and more processes fail.
    #[allow(clippy::needless_pass_by_value, reason = "it is closed when the consumer has come")]
    pub fn accept(
        listener: Listener,
        options: &Options,
        deadline: Option<Instant>,
    ) -> Result<Self> {
        Self::accept_each(&listener, options, deadline, Listener::PATIENCE)
    }

    /// Like [`Producer::accept`], but with another limit for each handshake than [`Listener::PATIENCE`].
    pub(super) fn accept_each(
        listener: &Listener,
        options: &Options,
        deadline: Option<Instant>,
        patience: Duration,
    ) -> Result<Self> {
        let is_over = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let meet = || {
            let link = listener.accept_until(deadline)?;
            let patient = Instant::now() + patience;
            let until = deadline.map_or(patient, |deadline| deadline.min(patient));
            Self::open_until(link, options, Some(until))
        };
        let producer = loop {
            match meet() {
                Ok(producer) => break producer,
                // These failures are local. The next attempt would fail too, with any peer.
                Err(
                    error @ (Error::System { .. } | Error::Meeting { .. } | Error::TooLarge { .. }),
                ) => return Err(error),
                // Check the deadline even after quick failures, because they could continue without end.
                Err(_) if is_over() => return Err(Error::Timeout),
                Err(_) => {}
            }
        };
        // Refuse the processes in the listener's queue, at most as many as it can hold. Later ones find no listener.
        for _ in 0..=peer::BACKLOG {
            let Ok(link) = listener.accept_until(Some(Instant::now())) else { break };
            handshake::refuse(&link, Refusal::Taken);
        }
        Ok(producer)
    }

    pub(super) fn over(end: ChannelEnd) -> Self {
        Self { end, head: 0, tail: 0, sent: 0, broken: None }
    }

    /// Returns the size in bytes of the largest possible message: the capacity minus one header.
    pub fn largest(&self) -> usize {
        self.end.capacity() as usize - FRAME_HEADER
    }

    /// Returns the random number that identifies this channel.
    pub fn epoch(&self) -> u64 {
        self.end.own.geometry.epoch
    }

    /// Returns the number of messages committed.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Waits until the consumer has released every message.
    pub fn drained_until(&mut self, deadline: Option<Instant>) -> Result<()> {
        self.check()?;
        let head = self.head;
        let before = self.tail;
        let look =
            &mut |end: &ChannelEnd| Ok(Some(tail_of(end, before, head)?).filter(|t| *t == head));
        match self.end.wait_for(WaitLimits::until(deadline), look) {
            Ok(tail) => self.tail = tail,
            Err(stop) => return Err(self.stopped(stop)),
        }
        Ok(())
    }

    /// Waits for room for a payload of `len` bytes at `head`, which is our own head or that of a batch. Returns `false`
    /// only with [`WaitPatience::None`], if there is no room now.
    pub(super) fn room(&mut self, head: u64, len: usize, patience: WaitPatience) -> Result<bool> {
        self.check()?;
        self.check_len(len)?;
        if let Some(gone) = self.end.gone(false) {
            return Err(self.stopped(WaitStop::Gone(gone)));
        }
        let needed = occupied(len as u64);
        let capacity = self.end.capacity();
        if capacity - (head - self.tail) >= needed {
            return Ok(true);
        }
        let (before, committed) = (self.tail, self.head);
        let look = &mut |end: &ChannelEnd| {
            let tail = tail_of(end, before, committed)?;
            Ok((capacity - (head - tail) >= needed).then_some(tail))
        };
        let found = self.end.find(patience, look);
        match found {
            Ok(Some(tail)) => {
                self.tail = tail;
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(stop) => Err(self.stopped(stop)),
        }
    }

    /// Publishes `messages` messages, up to position `head`.
    pub(super) fn commit(&mut self, head: u64, messages: u64) -> Result<()> {
        self.end.line.check_here()?;
        self.head = head;
        self.sent += messages;
        self.end.publish(head);
        Ok(())
    }

    /// Prepares for polling in an event loop. If it returns `Ok(true)`, poll the descriptor for reading, and retry when
    /// it is ready. If it returns `Ok(false)`, retry at once, because there is room for `len` bytes or the consumer is
    /// gone. Returns [`Error::TooLarge`] if `len` exceeds [`Producer::largest`].
    pub fn arm(&mut self, len: usize) -> Result<bool> {
        self.check()?;
        self.check_len(len)?;
        let (head, before) = (self.head, self.tail);
        let free = self.end.capacity() - occupied(len as u64);
        let look = &mut |end: &ChannelEnd| {
            Ok(Some(tail_of(end, before, head)?).filter(|tail| head - tail <= free))
        };
        let armed = self.end.arm(look);
        armed.map_err(|error| self.stopped(error.into()))
    }

    /// Returns the process at the reading end.
    pub fn peer(&self) -> &crate::link::Peer {
        self.end.line.link.peer()
    }

    fn check(&self) -> Result<()> {
        self.end.line.check_here()?;
        self.broken.clone().map_or(Ok(()), Err)
    }

    fn check_len(&self, len: usize) -> Result<()> {
        if len <= self.largest() {
            return Ok(());
        }
        let instead = Some("for larger buffers use bulk transfer (thalweg_channel::bulk)");
        let (len, most) = (len as u64, self.largest() as u64);
        Err(Error::TooLarge { len, most, instead })
    }

    fn stopped(&mut self, stop: WaitStop) -> Error {
        let delivered = match stop {
            WaitStop::Gone(_) => self.sent - self.outstanding(),
            _ => 0,
        };
        let error = stop.into_error(delivered);
        if matches!(error, Error::Corrupt { .. }) {
            self.broken = Some(error.clone());
        }
        error
    }

    /// Returns the number of messages committed but not released. Counts the frames in our own memory, because no other
    /// process can write there.
    fn outstanding(&self) -> u64 {
        let mut at = tail_of(&self.end, self.tail, self.head).unwrap_or(self.tail);
        let mut count = 0;
        while at < self.head {
            let len = self.end.own.frame_header(at)[0] as u32;
            at += occupied(u64::from(len));
            count += 1;
        }
        count.min(self.sent)
    }

    pub(super) fn frame(&self, len: usize, seq: u64, at: u64) -> Frame {
        let len = len as u32;
        let crc = self.end.own.geometry.checksums.then(|| {
            // SAFETY: This is our own memory, which no other process writes, and `room` has succeeded for `len`.
            let payload = unsafe { self.end.own.payload(at, len as usize) };
            Frame::sum(len, seq, payload)
        });
        Frame { len, seq, crc }
    }
}

impl AsFd for Producer {
    /// Returns the descriptor to poll. It is readable if room may be available or the consumer is gone.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.line.link.as_fd()
    }
}

/// Reads the consumer's tail and checks that it is plausible.
fn tail_of(end: &ChannelEnd, before: u64, head: u64) -> Result<u64> {
    let tail = steps::seen(&end.peer.words().cursor.0);
    if tail < before || tail > head || !tail.is_multiple_of(ALIGN) {
        let what = format!("tail {tail}: not a multiple of {ALIGN} between {before} and {head}");
        return Err(Error::Corrupt { what });
    }
    Ok(tail)
}

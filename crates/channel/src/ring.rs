//! The message ring: one producer, one consumer, and two sealed memory files. It needs no system calls while both ends
//! are awake. Messages are read where they were written. For larger buffers, use bulk transfer ([`crate::bulk`]). For
//! more than two ends, use [`crate::Broadcast`] or [`crate::Mpsc`].
//!
//! Each end maps the other's memory read-only, and therefore cannot write it, shrink it or enlarge it. An end reports
//! an impossible position of the other as [`Error::Corrupt`], and never reads there.
//!
//! ```
//! use thalweg_channel::{Error, Options, pair};
//!
//! // Between processes: `Producer::open` and `Consumer::open`, each over its end of a `Link`.
//! let (mut producer, mut consumer) = pair(&Options::default())?;
//! let mut loan = producer.loan(5)?;
//! loan.copy_from_slice(b"hello");
//! loan.commit()?;
//! assert_eq!(&*consumer.receive()?, b"hello");
//! drop(producer);
//! assert_eq!(consumer.receive().err(), Some(Error::Closed { delivered: 1 }));
//! # Ok::<(), Error>(())
//! ```

use crate::error::{Error, Result};
use crate::layout::{Geometry, MOST_CAPACITY, Role};
use crate::link::Link;
use crate::shared::end::ChannelEnd;
use crate::shared::handshake::{AskedParty, MetSides, Offered, Party, new_epoch};
use crate::shared::line::LinkLine;
use crate::shared::stop::WaitStop;
use crate::shared::wait::{Wait, WaitLimits};
use std::time::Instant;

mod consumer;
mod frames;
mod held;
mod pace;
mod producer;
mod samples;
mod write;

pub use consumer::{Consumer, Sample};
pub use held::Held;
pub use producer::Producer;
pub use samples::Samples;
pub use write::{Batch, DetachedLoan, Loan};

/// Options of one end of a ring. The peer has its own options; some fields apply only at one of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Producer only: capacity for unread messages, in bytes. Each message needs its payload and 32 bytes, rounded up
    /// to a multiple of 64. The capacity is rounded up to a power of two and to at least one page. All of it is
    /// allocated at once.
    pub capacity: u64,
    /// Method of waiting for the peer.
    pub wait: Wait,
    /// `true` if the peer is known to follow the protocol. If `false`, the consumer copies each message out of the
    /// shared memory before reading it, so that the message cannot change during the read.
    pub trusted: bool,
    /// Producer only: `true` if each message carries a CRC-32C, which the consumer checks.
    pub checksums: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { capacity: 1 << 20, wait: Wait::default(), trusted: true, checksums: false }
    }
}

/// Creates both ends in this process, for two threads or for passing one end to a forked child.
pub fn pair(options: &Options) -> Result<(Producer, Consumer)> {
    let (near, far) = Link::pair().map_err(|error| {
        let errno = thalweg_sys::Errno::from_io_error(&error);
        Error::System { call: "socketpair", errno: errno.unwrap_or(thalweg_sys::Errno::IO) }
    })?;
    // The link queues the handshake messages, so this thread can act for both sides, one after the other.
    let offered = offer(near, options, None)?;
    let accepted = ask(far, None)?.accept().map_err(error_of)?;
    let producer = Producer::over(end(offered.finish(), options)?);
    let consumer = Consumer::over(end(accepted.finish(), options)?, options);
    Ok((producer, consumer))
}

fn party(link: Link, role: Role, deadline: Option<Instant>) -> Party {
    Party { link, role, introduction: None, limits: WaitLimits::until(deadline) }
}

/// Creates the producer's memory and sends its descriptor.
fn offer(link: Link, options: &Options, deadline: Option<Instant>) -> Result<Offered> {
    let least = rustix::param::page_size() as u64;
    let capacity = options.capacity.max(least).checked_next_power_of_two();
    let capacity = capacity
        .filter(|capacity| *capacity <= MOST_CAPACITY)
        .ok_or(Error::TooLarge { len: options.capacity, most: MOST_CAPACITY, instead: None })?;
    let geometry = Geometry {
        header: Geometry::header_len(),
        capacity,
        checksums: options.checksums,
        epoch: new_epoch()?,
        process: std::process::id(),
    };
    party(link, Role::Producer, deadline).offer(geometry).map_err(error_of)
}

/// Sends the first message of a consumer, which shows the producer that it is connected.
fn ask(link: Link, deadline: Option<Instant>) -> Result<AskedParty> {
    party(link, Role::Consumer, deadline).ask().map_err(error_of)
}

/// Builds one end of a ring after its handshake.
fn end(met: std::result::Result<MetSides, WaitStop>, options: &Options) -> Result<ChannelEnd> {
    let MetSides { link, memory, .. } = met.map_err(error_of)?;
    let sides = memory.map_err(|why| Error::not_permitted(why.reason))?;
    Ok(ChannelEnd::new(sides, LinkLine::new(link, 0), options.wait))
}

/// Converts the failure of a handshake, in which no message was delivered.
fn error_of(stop: WaitStop) -> Error {
    stop.into_error(0)
}

#[cfg(test)]
mod tests;

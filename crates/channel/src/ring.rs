//! The message ring: one producer, one consumer, two sealed memory files, no system call while
//! both are awake. Messages are read where they were written. For buffers larger than the ring
//! there is bulk transfer, for more ends [`crate::Broadcast`] and [`crate::Mpsc`].
//!
//! The consumer reads the producer's memory through a read-only mapping, the producer the
//! consumer's; neither can write, shrink or grow the other's. A position that cannot be is
//! [`Error::Corrupt`], and nothing is read by it.
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
use crate::link::Link;
use crate::wait::Wait;

mod consumer;
mod end;
mod handshake;
mod memory;
mod producer;
mod samples;
mod write;

pub use consumer::{Consumer, Sample};
pub use producer::Producer;
pub use samples::Samples;
pub use write::{Batch, Loan};

/// How a ring is made and waited for. Each end has its own; what only the other decides is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of messages that may be under way, with 32 bytes for each and rounded up to 64;
    /// rounded up to a power of two and a page. The memory is taken at once. The producer decides.
    pub capacity: u64,
    /// How to wait for the other end.
    pub wait: Wait,
    /// Whether the peer keeps to the protocol. If not, the consumer copies each message out of the
    /// shared memory before it looks at it, so that it cannot change while it is read.
    pub trusted: bool,
    /// Whether each message carries a CRC-32C, which the consumer checks. The producer decides.
    pub checksums: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { capacity: 1 << 20, wait: Wait::default(), trusted: true, checksums: false }
    }
}

/// Both ends in this process, for two threads, or for one to be handed on with a fork.
pub fn pair(options: &Options) -> Result<(Producer, Consumer)> {
    let (near, far) = Link::pair().map_err(|error| {
        let errno = thalweg_sys::Errno::from_io_error(&error);
        Error::System { call: "socketpair", errno: errno.unwrap_or(thalweg_sys::Errno::IO) }
    })?;
    // The messages of the handshake wait in the link, so one thread can play both parts.
    let offered = handshake::offer(near, options)?;
    let asked = handshake::ask(far)?;
    let accepted = asked.accept(None)?;
    let producer = Producer::over(offered.finish(None, options)?);
    let consumer = Consumer::over(accepted.finish(None, options)?, options);
    Ok((producer, consumer))
}

#[cfg(test)]
mod races;
#[cfg(test)]
mod tests;

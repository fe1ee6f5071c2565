//! Moves bytes between processes on one machine.
//!
//! Reading order: [`link`] connects two processes and carries descriptors. [`error`] lists the possible failures.
//! [`layout`] defines every byte that two processes share. `shared` sets up the shared memory and waits for the peer.
//! [`ring`] carries messages. [`broadcast`] and [`mpsc`] combine several rings. [`bulk`] moves large buffers.

pub mod broadcast;
pub mod bulk;
pub mod error;
pub mod layout;
pub mod link;
pub mod mpsc;
pub mod ring;
mod shared;

pub use broadcast::{Broadcast, Departure, Notice, Slow, Subscription};
pub use error::Error;
pub use link::{Address, Admit, Link, Listener, Peer};
pub use mpsc::{Arrival, Mpsc};
pub use ring::{
    Batch, Consumer, DetachedLoan, Held, Loan, Options, Producer, Sample, Samples, pair,
};
pub use shared::wait::Wait;

/// Runs the examples of README.md as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ChannelReadme;

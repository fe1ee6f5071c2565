//! Bytes between processes on one machine.
//!
//! Reading order: [`link`] joins two processes and carries descriptors, [`error`] is what can go
//! wrong, [`layout`] is every byte that two processes share, `shared` how they come to share them and
//! wait for each other, [`ring`] carries messages. [`broadcast`] and [`mpsc`] put several rings together. [`bulk`] moves large
//! buffers.

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
pub use ring::{Batch, Consumer, Held, Loan, Options, Producer, Sample, Samples, pair};
pub use shared::wait::Wait;

/// The examples of README.md are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

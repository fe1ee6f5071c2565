//! Bulk transfer: moves large buffers from one process to another.
//!
//! A [`Sender`] and a [`Receiver`] connect over a [`Link`](crate::Link), agree on one of the [`MECHANISMS`] that work
//! between them, and move one buffer after another. A buffer either arrives completely, or
//! [`Error::PeerDied`](crate::Error::PeerDied) reports the length of the valid part. If one side refuses a mechanism,
//! another replaces it and the reason is recorded.

mod accept;
mod choice;
mod choose;
mod control;
mod control_message;
mod facts;
mod files;
mod handshake;
mod joint;
mod measured;
mod mechanism;
mod mechanisms;
mod memory;
mod receiver;
mod sender;
mod stream;

pub use choice::{Choice, Cited};
pub use choose::{Options, choose};
pub use facts::{Destination, Facts};
pub use files::{Announced, FromOpen, Handed, Item, NotMoved, Pace, Problem, Sink, Watch};
pub use handshake::Skipped;
pub use measured::{HUGE, LOAN, PROCESS, known, measured_at, saved_profile, words};
pub use mechanism::{Broken, Incoming, Mechanism, Outgoing, Parcel, TransferEnds};
pub use mechanisms::{MECHANISMS, by_name};
pub use memory::{Buffer, Loan, buffer};
pub use receiver::Receiver;
pub use sender::Sender;

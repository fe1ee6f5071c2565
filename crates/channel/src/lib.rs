//! Bytes between processes on one machine.
//!
//! Reading order: [`link`] joins two processes and carries descriptors, [`error`] is what can go
//! wrong.

pub mod bulk;
pub mod error;
pub mod link;

pub use error::Error;
pub use link::{Address, Admit, Link, Listener, Peer};

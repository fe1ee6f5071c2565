//! Ends of rings and of bulk transfers that are killed. What they leave is counted in the whole process, so that these tests
//! are not in one with others.
#![allow(clippy::unwrap_used)]

mod bulk_kills;
mod held;
mod kills;
#[path = "../channel/bulk/peer.rs"]
mod peer;

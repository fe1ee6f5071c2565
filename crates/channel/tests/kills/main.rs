//! Kills ends of rings and of bulk transfers. The tests count the resources of the whole process, so they have a test binary of their own.
#![allow(clippy::unwrap_used)]

mod bulk_kills;
mod held;
mod kills;
#[path = "../channel/bulk/peer.rs"]
mod peer;

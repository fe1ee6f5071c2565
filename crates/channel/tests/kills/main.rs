//! Kills processes at the ends of rings and bulk transfers. These tests have a binary of their own, because they count
//! the resources of the process.
#![allow(clippy::unwrap_used)]

mod bulk_kills;
mod held;
mod kills;
#[path = "../channel/bulk/peer.rs"]
mod peer;

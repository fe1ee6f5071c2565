//! Bulk transfer between real processes: what arrives, what is promised, who dies, what is refused.
//! Written against the list of arms, with no arm's name inside.

#![allow(clippy::unwrap_used)]

mod conformance;
mod kills;
mod peer;
mod refusals;
mod skips;

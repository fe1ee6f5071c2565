//! Bulk transfer between real processes: what arrives, what is promised, who lives, what is
//! refused. Written against the list of mechanisms, with no mechanism's name inside.

#![allow(clippy::unwrap_used)]

mod conformance;
mod files;
mod lives;
mod open_files;
mod peer;
mod refusals;
mod skips;

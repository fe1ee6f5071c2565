//! Studies: run for real, simulated with a known truth, or replayed; and their reports.
#![allow(clippy::unwrap_used)]

mod bulk;
mod claims;
mod extended;
mod honesty;
mod java;
mod peers;
mod planted;
mod probes;
mod report;
mod studies;
mod transfer;

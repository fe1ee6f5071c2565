//! Compares every row of the tables with a naive loop.
#![allow(clippy::unwrap_used)]

mod bands;
mod conformance;
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
mod disassembly;
#[cfg(not(miri))]
mod environment;
mod faces;
#[cfg(not(miri))]
mod first_band;
#[cfg(not(miri))]
mod guard;
mod hashes;
mod inline;
#[cfg(not(miri))]
mod property;
mod support;

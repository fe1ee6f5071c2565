//! Helpers for the tests of all crates: counted skips, random numbers with a seed, programs and processes.
//!
//! The dev-dependencies of other crates name this crate without a version, so that their published packages do not
//! depend on it.

#![forbid(unsafe_code)]

pub mod bytes;
mod dice;
mod executable;
mod files;
pub mod jdk;
mod message;
mod port;
mod process;
mod sample;
mod skip;

pub use dice::{Dice, from_env};
pub use executable::{example, executable, script};
pub use files::{names, noise};
pub use message::message;
pub use port::ReservedPort;
pub use process::{again, alone, lock, open_files, peak_resident};
pub use sample::{Sample, sample_share};
pub use skip::{has_tools, skip};

//! Measures mechanisms honestly and writes the machine profile.
#![forbid(unsafe_code)]

pub mod conditions;
pub mod contamination;
pub mod peer;
pub mod rounds;
pub mod sample;
mod scratch;
pub mod stats;
pub mod tune;

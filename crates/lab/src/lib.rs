//! Measures mechanisms honestly and writes the machine profile.
#![forbid(unsafe_code)]

pub mod rounds;
pub mod sample;
pub mod stats;

//! Measures mechanisms honestly and writes the machine profile.
#![forbid(unsafe_code)]

pub mod stats;

//! The preloaded object in C programs.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod alone;
mod conformance;
mod support;

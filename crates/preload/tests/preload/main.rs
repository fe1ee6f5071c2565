//! The preloaded object in programs of C.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod alone;
mod conformance;
mod support;

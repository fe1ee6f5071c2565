//! Tests of properties that belong to the whole process: its umask and its peak memory.
#![allow(clippy::unwrap_used)]

mod fleet_memory;
mod memory;
#[path = "../tree/support/mod.rs"]
mod support;
mod umask;

//! Tests of what belongs to the whole process: its umask, and the most memory that it has had.
#![allow(clippy::unwrap_used)]

mod fleet_memory;
mod memory;
#[path = "../tree/support/mod.rs"]
mod support;
mod umask;

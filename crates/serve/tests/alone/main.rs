//! Tests of state that belongs to the whole process: open descriptors and peak memory.
#![allow(clippy::unwrap_used)]

mod accepting;
mod list_memory;
#[path = "../serve/serving/support.rs"]
#[allow(dead_code, reason = "the tests in serve use the rest")]
mod serving;
#[path = "../serve/support/mod.rs"]
mod support;
#[path = "../serve/trees/support.rs"]
#[allow(dead_code, reason = "the tests in serve use the rest")]
mod trees;

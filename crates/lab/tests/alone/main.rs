//! Tests that count what the whole process does.
#![allow(clippy::unwrap_used)]

mod bulk_memory;

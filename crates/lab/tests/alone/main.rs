//! Tests of counts that include the whole process.
#![allow(clippy::unwrap_used)]

mod bulk_memory;

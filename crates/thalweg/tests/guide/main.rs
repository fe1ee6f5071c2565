//! Tests the programs of the guide, and copies through the public interface.
#![allow(clippy::unwrap_used)]

mod copies;
mod guide;

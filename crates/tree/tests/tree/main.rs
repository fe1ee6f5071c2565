//! Copies of trees through the public interface.
#![allow(clippy::unwrap_used)]

mod attributes;
mod count;
mod deletions;
mod exclude;
mod faults;
mod filter_files;
mod fleet;
mod fleet_parts;
mod names;
mod owners;
mod property;
mod resume;
mod rivals;
mod semantics;
mod support;

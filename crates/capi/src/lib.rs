//! The C ABI: implements the functions that `include/thalweg.h` declares.
//!
//! The header is written by hand, and it is the contract. A test compiles C against it and checks that sizes, offsets
//! and names agree with this crate. This crate contains no logic: it converts arguments, calls other crates, and
//! converts their results.
//!
//! No panic crosses the boundary to C: [`guard::run`] converts it to `TW_INTERNAL`.

mod broadcast;
mod buffer;
mod bulk;
mod channel;
mod consumer;
mod error;
mod guard;
mod handle;
mod json;
mod kernel;
mod link;
mod mechanism;
mod moving;
mod mpsc;
mod options;
mod producer;
mod profile;
mod receiver;
mod region;
mod sender;
mod sigpipe;
mod text;

#[cfg(test)]
mod tests;

//! The parts of HTTP/1.1 that need no socket: they turn bytes into requests, conditions and ranges.

pub mod condition;
pub mod head;
pub mod input;
pub mod media;
pub mod range;
pub mod status;
pub mod target;

//! What of HTTP/1.1 needs no socket: requests, conditions and ranges, each from bytes to a decision.

pub mod condition;
pub mod head;
pub mod input;
pub mod media;
pub mod range;
pub mod status;
pub mod target;

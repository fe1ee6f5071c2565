//! Common parts of the message ring and of bulk transfer: two memory files, each written by one side only; their
//! exchange; sleeping until the peer has written something; and detecting that the peer has closed or died.
//! docs/reference/formats.md describes the words. `wait/steps` defines the order of every load and store, which loom
//! checks.

pub(crate) mod end;
pub(crate) mod handshake;
pub(crate) mod holds;
pub(crate) mod line;
pub(crate) mod liveness;
pub(crate) mod memory;
pub(crate) mod publisher;
pub(crate) mod stop;
pub(crate) mod wait;

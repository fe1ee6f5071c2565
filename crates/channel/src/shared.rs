//! Parts that message rings and bulk transfers share: two memory files, each written by one side only; the handshake
//! that exchanges them; waiting for the peer; and detecting that the peer has closed its end or died.
//! docs/reference/formats.md specifies the shared words. `wait/steps` defines the order of their loads and stores,
//! which tests check with loom.

pub(crate) mod end;
pub(crate) mod handshake;
pub(crate) mod holds;
pub(crate) mod line;
pub(crate) mod liveness;
pub(crate) mod memory;
pub(crate) mod publisher;
pub(crate) mod stop;
pub(crate) mod wait;

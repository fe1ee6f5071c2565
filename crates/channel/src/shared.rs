//! Parts that the message ring and bulk transfer share: two memory files, each written by one side only; the handshake
//! that exchanges them; waiting for the peer; and detecting that the peer has closed or died. docs/reference/formats.md
//! specifies the shared words. `wait/steps` defines the order of every load and store, and loom checks that order.

pub(crate) mod end;
pub(crate) mod handshake;
pub(crate) mod holds;
pub(crate) mod line;
pub(crate) mod liveness;
pub(crate) mod memory;
pub(crate) mod publisher;
pub(crate) mod stop;
pub(crate) mod wait;

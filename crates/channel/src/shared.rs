//! What the message ring and bulk transfer have in common: two memory files, each written by one
//! side alone; how the sides exchange them; how one side sleeps until the other has news, and how it
//! learns that the other has closed or died. docs/formats.md describes the words, `wait/steps` holds
//! the order of every load and store, which loom tries out.

pub(crate) mod end;
pub(crate) mod handshake;
pub(crate) mod holds;
pub(crate) mod line;
pub(crate) mod liveness;
pub(crate) mod memory;
pub(crate) mod publisher;
pub(crate) mod stop;
pub(crate) mod wait;

//! Every byte that two processes share, as docs/formats.md lays it down: the fixed fields of a memory
//! file and its words, frames, the messages of the handshake. What is parsed was copied to private
//! memory before.

mod frame;
mod geometry;
mod hello;
mod words;

pub use frame::{Frame, occupied};
pub use geometry::{Geometry, Role};
pub use hello::{Hello, Introduction, Kind, Refusal};
pub(crate) use words::{UNREAD, Words};

/// Of a ring's memory, frames and handshake; a reader refuses another number.
pub const VERSION: u32 = 1;

/// Of a bulk transfer's memory, handshake and messages.
pub const BULK_VERSION: u32 = 3;

/// Frames begin at multiples of this.
pub const ALIGN: u64 = 64;

/// Bytes of a frame before its payload.
pub const FRAME_HEADER: usize = 32;

/// The largest ring: positions modulo 2^32 then tell two moments apart, as the sleep protocol of
/// other implementations may need.
pub const MOST_CAPACITY: u64 = 1 << 30;

/// What is wrong with bytes that a peer wrote: where, what was found, what is allowed.
pub type Fault = String;

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

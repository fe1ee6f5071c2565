//! All bytes that two processes share, as docs/reference/formats.md specifies them: the fixed fields and the words of a
//! memory file, the frames, and the handshake messages. Parsers read only bytes that were first copied to private
//! memory.

mod frame;
mod geometry;
mod hello;
mod words;

pub use frame::{Frame, occupied};
pub use geometry::{Geometry, Role};
pub use hello::{Hello, HelloKind, Introduction, Refusal};
pub(crate) use words::{SideWords, UNREAD};

/// Format version of a ring's memory, frames and handshake. Readers reject all other versions.
pub const VERSION: u32 = 1;

/// Format version of a bulk transfer's memory, handshake and messages.
pub const BULK_VERSION: u32 = 3;

/// Alignment of frames, in bytes.
pub const ALIGN: u64 = 64;

/// Size of a frame header in bytes.
pub const FRAME_HEADER: usize = 32;

/// Maximum capacity of a ring, in bytes. Up to this capacity, the low 32 bits of a position identify it within the
/// ring. Other implementations may use these bits as the word of a 32-bit futex.
pub const MOST_CAPACITY: u64 = 1 << 30;

/// Describes invalid bytes that the peer wrote: their position, the value found and the values allowed.
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

//! Every byte that two processes share, as docs/reference/formats.md specifies it: the fixed fields and the words
//! of a memory file, the frames, and the handshake messages. Parsers only read bytes that were copied
//! to private memory first.

mod frame;
mod geometry;
mod hello;
mod words;

pub use frame::{Frame, occupied};
pub use geometry::{Geometry, Role};
pub use hello::{Hello, HelloKind, Introduction, Refusal};
pub(crate) use words::{SideWords, UNREAD};

/// Format version of a ring's memory, frames and handshake; readers reject any other number.
pub const VERSION: u32 = 1;

/// Format version of a bulk transfer's memory, handshake and messages.
pub const BULK_VERSION: u32 = 3;

/// Alignment of frames, in bytes.
pub const ALIGN: u64 = 64;

/// Size of a frame header in bytes.
pub const FRAME_HEADER: usize = 32;

/// The largest ring, in bytes. The low 32 bits of a position then identify any position of the ring. Other
/// implementations may need that in order to sleep on a 32-bit futex.
pub const MOST_CAPACITY: u64 = 1 << 30;

/// Describes invalid bytes that a peer wrote: position, value found, values allowed.
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

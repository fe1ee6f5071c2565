//! Buffers, and their contents for checks. Contents and sums are computed as in `two.h`.

use crate::Outcome;
use std::ops::{Deref, DerefMut};
use thalweg_sys::map::Map;

/// Private memory, on ordinary pages.
#[derive(Debug)]
pub struct Memory(Map);

impl Memory {
    /// Maps memory whose pages are not resident yet.
    pub fn fresh(len: usize) -> Outcome<Self> {
        Map::anonymous(len, false).map(Self).map_err(|e| format!("mmap of {len} bytes: {e}"))
    }

    /// Maps memory and writes every page.
    pub fn resident(len: usize) -> Outcome<Self> {
        let mut made = Self::fresh(len)?;
        made.fill(1);
        Ok(made)
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.bytes().unwrap_or_default()
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.bytes_mut().unwrap_or_default()
    }
}

/// Fills memory with bytes that depend on their position and on `salt`.
pub fn fill(memory: &mut [u8], salt: u64) {
    let mut word = salt.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
    for piece in memory.chunks_mut(8) {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        piece.copy_from_slice(&word.to_ne_bytes()[..piece.len()]);
    }
}

/// Returns a sum that depends on every byte and its position.
pub fn checksum(memory: &[u8]) -> u64 {
    let mut sum = 14_695_981_039_346_656_037_u64;
    for piece in memory.chunks(8) {
        let mut word = [0; 8];
        word[..piece.len()].copy_from_slice(piece);
        sum = fold(sum, u64::from_ne_bytes(word));
        sum ^= sum >> 32;
    }
    sum
}

/// Combines the sum of a sequence of messages with the sum of the next message.
pub fn fold(sum: u64, next: u64) -> u64 {
    (sum ^ next).wrapping_mul(1_099_511_628_211)
}

/// Writes a message's number to its start.
pub fn put(message: &mut [u8], number: u64) {
    if let Some(start) = message.first_chunk_mut() {
        *start = number.to_ne_bytes();
    }
}

/// Checks that the message has this number.
pub fn expect(message: &[u8], number: u64) -> Outcome {
    let found = message.first_chunk().map(|start| u64::from_ne_bytes(*start));
    match found {
        Some(found) if found == number => Ok(()),
        found => Err(format!("message {number} came as {found:?}")),
    }
}

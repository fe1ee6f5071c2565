//! Memory that the kernel copies bytes into and out of.

use std::ops::{Deref, DerefMut};

/// Where a buffer begins, in bytes: a line of the cache, which is more than any processor's copy asks for.
const LINE: usize = 64;

/// Bytes that begin at a multiple of 64, zeroed, and not touched before they are used. The allocator promises 16, and
/// lets large blocks begin 16 bytes into a page: `rep movsb`, by which the kernel copies, is slow there on some
/// processors (docs/planner.md).
#[derive(Debug, Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// `len` bytes.
    pub fn new(len: usize) -> Self {
        if len == 0 {
            return Self::default();
        }
        let bytes = vec![0; len.saturating_add(LINE - 1)];
        // It may answer that there is no such place; then any will do.
        let start = bytes.as_ptr().align_offset(LINE).min(LINE - 1);
        Self { bytes, start, len }
    }

    /// The most bytes it has had.
    pub fn capacity(&self) -> usize {
        self.bytes.len().saturating_sub(LINE - 1)
    }

    /// Makes it `len` bytes long. What is in them is as it was, unless it has never been so long: then they are new.
    pub fn resize(&mut self, len: usize) {
        if len > self.capacity() {
            *self = Self::new(len);
        }
        self.len = len;
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..][..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_at_a_line_whatever_its_length() {
        for len in [1, 15, 4096, 65_536, 128 << 10, (128 << 10) + 1, 4 << 20] {
            let mut buffer = Buffer::new(len);
            assert_eq!((buffer.len(), buffer.as_ptr() as usize % LINE), (len, 0));
            assert!(buffer.iter().all(|byte| *byte == 0));
            buffer[len - 1] = 1;
            buffer.resize(len - 1);
            assert_eq!(buffer.len(), len - 1);
            buffer.resize(len);
            assert_eq!(buffer[len - 1], 1);
            buffer.resize(len + 64);
            assert_eq!((buffer[len - 1], buffer.as_ptr() as usize % LINE), (0, 0));
        }
        assert!(Buffer::new(0).is_empty() && Buffer::default().capacity() == 0);
    }
}

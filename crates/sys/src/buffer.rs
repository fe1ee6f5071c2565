//! Aligned memory for buffers that the kernel copies into and out of.

use std::ops::{Deref, DerefMut};

/// Alignment of a buffer in bytes: a cache line, which is sufficient for every processor's copy instruction.
const LINE: usize = 64;

/// Zeroed bytes, aligned to 64. Creating the buffer does not touch its pages. The allocator guarantees an alignment of
/// 16 only, and places large blocks 16 bytes into a page. On some processors, `rep movsb` is slow at such addresses,
/// and the Linux kernel copies with that instruction (docs/benchmarks/planner.md).
#[derive(Debug, Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// Creates a buffer of `len` zeroed bytes.
    pub fn new(len: usize) -> Self {
        if len == 0 {
            return Self::default();
        }
        let bytes = vec![0; len.saturating_add(LINE - 1)];
        // `align_offset` may report that no aligned address exists. Any start is then accepted.
        let start = bytes.as_ptr().align_offset(LINE).min(LINE - 1);
        Self { bytes, start, len }
    }

    /// Returns the largest length that the buffer has had, in bytes.
    pub fn capacity(&self) -> usize {
        self.bytes.len().saturating_sub(LINE - 1)
    }

    /// Changes the length to `len` bytes. Keeps the contents if `len` is at most the capacity; otherwise, replaces the
    /// buffer by a zeroed one.
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

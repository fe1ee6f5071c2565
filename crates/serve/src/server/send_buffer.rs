//! Bytes that are sent with one call: a head, and as much of the body as fits.

/// Maximum number of body bytes that are copied into memory for one send.
pub const ONE_SEND: usize = 64 << 10;

/// Bytes that are ready to be sent. The buffer keeps old bytes beyond `filled`, so it is not zeroed again for every
/// answer.
#[derive(Debug, Default)]
pub struct SendBuffer {
    bytes: Vec<u8>,
    filled: usize,
    sent: usize,
}

impl SendBuffer {
    /// Uses an existing buffer.
    pub fn within(bytes: Vec<u8>) -> Self {
        Self { bytes, filled: 0, sent: 0 }
    }

    /// Returns the number of bytes in the buffer, including those already sent.
    pub fn len(&self) -> usize {
        self.filled
    }

    /// Returns the number of bytes already sent.
    pub fn sent_so_far(&self) -> usize {
        self.sent
    }

    /// Returns the bytes still to be sent.
    pub fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..self.filled]
    }

    /// Records that `count` more bytes were sent.
    pub fn sent(&mut self, count: usize) {
        self.sent += count;
    }

    /// Returns space for `len` more bytes. The caller reports with [`fill`](Self::fill) how many it wrote.
    pub fn room(&mut self, len: usize) -> &mut [u8] {
        let end = self.filled + len;
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        &mut self.bytes[self.filled..end]
    }

    /// Records that `count` more bytes were written into the buffer.
    pub fn fill(&mut self, count: usize) {
        self.filled += count;
    }

    /// Appends bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
        self.fill(bytes.len());
    }

    /// Truncates the contents to `len` bytes.
    pub fn cut(&mut self, len: usize) {
        self.filled = len;
    }

    /// Empties the contents and keeps the buffer.
    pub fn clear(&mut self) {
        (self.filled, self.sent) = (0, 0);
    }

    /// Moves the unsent bytes into a buffer of exactly their size and returns the old buffer.
    pub fn shrink(&mut self) -> Vec<u8> {
        let rest = self.unsent().to_vec();
        (self.filled, self.sent) = (rest.len(), 0);
        std::mem::replace(&mut self.bytes, rest)
    }

    /// Returns the buffer for reuse.
    pub fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }

    /// Returns the size, in bytes, of its memory.
    pub fn held(&self) -> usize {
        self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_before_is_never_sent() {
        let mut bytes = SendBuffer::within(vec![9; 100]);
        bytes.push(b"abc");
        bytes.room(2).copy_from_slice(b"de");
        bytes.fill(1);
        assert_eq!(bytes.unsent(), b"abcd");
        bytes.sent(3);
        assert_eq!((bytes.len(), bytes.unsent()), (4, &b"d"[..]));
        assert_eq!(bytes.shrink().len(), 100);
        assert_eq!((bytes.unsent(), bytes.held()), (&b"d"[..], 1));
        bytes.clear();
        assert_eq!(bytes.unsent(), b"");
    }
}

//! Bytes that go out in one send: a head, and as much behind it as fits.

/// The most of a body that is put together in memory.
pub const ONE_SEND: usize = 64 << 10;

/// Put together and not sent yet. The buffer keeps what it once had behind its end: it is not cleared anew for
/// every answer.
#[derive(Debug, Default)]
pub struct Gathered {
    bytes: Vec<u8>,
    filled: usize,
    sent: usize,
}

impl Gathered {
    /// In a buffer that was used before.
    pub fn within(bytes: Vec<u8>) -> Self {
        Self { bytes, filled: 0, sent: 0 }
    }

    /// Bytes put together, those that were sent among them.
    pub fn len(&self) -> usize {
        self.filled
    }

    /// How many of them were sent.
    pub fn sent_so_far(&self) -> usize {
        self.sent
    }

    /// What is to be sent.
    pub fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..self.filled]
    }

    /// So many more were sent.
    pub fn sent(&mut self, count: usize) {
        self.sent += count;
    }

    /// Where more goes; [`fill`](Self::fill) says how much of it did.
    pub fn room(&mut self, len: usize) -> &mut [u8] {
        let end = self.filled + len;
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        &mut self.bytes[self.filled..end]
    }

    /// So many more are put together.
    pub fn fill(&mut self, count: usize) {
        self.filled += count;
    }

    /// Puts bytes behind the others.
    pub fn push(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
        self.fill(bytes.len());
    }

    /// Forgets what is behind so many.
    pub fn cut(&mut self, len: usize) {
        self.filled = len;
    }

    /// Empty again, in the same buffer.
    pub fn clear(&mut self) {
        (self.filled, self.sent) = (0, 0);
    }

    /// Keeps what is unsent in as little memory as that takes, and gives back the buffer.
    pub fn shrink(&mut self) -> Vec<u8> {
        let rest = self.unsent().to_vec();
        (self.filled, self.sent) = (rest.len(), 0);
        std::mem::replace(&mut self.bytes, rest)
    }

    /// The buffer alone.
    pub fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }

    /// How much memory it keeps.
    pub fn held(&self) -> usize {
        self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_before_is_never_sent() {
        let mut bytes = Gathered::within(vec![9; 100]);
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

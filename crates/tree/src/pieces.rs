//! A large file in pieces, which the threads take that have nothing else to do.

use std::{
    ops::Range,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

/// The bytes of a piece: a power of two.
pub(crate) const PIECE: u64 = 4 << 20;

/// Which pieces are taken, and how many threads may still take one.
pub(crate) struct Pieces {
    len: u64,
    next: AtomicU64,
    expected: AtomicUsize,
}

impl Pieces {
    /// Whether it pays to share so many bytes.
    pub fn suit(len: u64) -> bool {
        len > 2 * PIECE
    }

    /// Pieces of a file, for so many threads.
    pub fn new(len: u64, threads: usize) -> Self {
        Self { len, next: AtomicU64::new(0), expected: AtomicUsize::new(threads) }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.len.div_ceil(PIECE) as usize
    }

    /// The next piece, in their order.
    pub fn take(&self) -> Option<Range<u64>> {
        let from = self.next.fetch_add(PIECE, Ordering::Relaxed);
        (from < self.len).then(|| from..self.len.min(from + PIECE))
    }

    /// A thread has taken its last piece. True for the last thread: all pieces are done.
    pub fn done(&self) -> bool {
        // AcqRel: the last one sees what all others found.
        self.expected.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

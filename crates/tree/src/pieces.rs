//! A large file in pieces, which the thread that met it takes, and those that have nothing else to do.

use std::{
    ops::Range,
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

/// The bytes of a piece: a power of two.
pub(crate) const PIECE: u64 = 4 << 20;

/// Which pieces are taken, and how many threads are at it.
pub(crate) struct Pieces {
    len: u64,
    next: AtomicU64,
    busy: AtomicUsize,
    concluded: AtomicBool,
}

impl Pieces {
    /// Whether it pays to share so many bytes.
    pub fn suit(len: u64) -> bool {
        len > 2 * PIECE
    }

    /// Pieces of a file.
    pub fn new(len: u64) -> Self {
        let (busy, concluded) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self { len, next: AtomicU64::new(0), busy, concluded }
    }

    /// A thread is about to take pieces.
    pub fn begin(&self) {
        self.busy.fetch_add(1, Ordering::AcqRel);
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

    /// A thread has done its last piece. True for one of them: all pieces are done.
    pub fn done(&self) -> bool {
        // AcqRel: the last one sees what all others found. A thread that comes later finds no piece that matters.
        self.busy.fetch_sub(1, Ordering::AcqRel) == 1
            && !self.concluded.swap(true, Ordering::AcqRel)
    }
}

//! Splits a large file into pieces, which several workers process.

use std::{
    ops::Range,
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

/// Size of a piece in bytes: a power of two.
pub(crate) const PIECE: u64 = 4 << 20;

/// The state of a file in pieces: the next free piece, and the number of active workers.
pub(crate) struct Pieces {
    len: u64,
    next: AtomicU64,
    busy: AtomicUsize,
    concluded: AtomicBool,
}

impl Pieces {
    /// Returns `true` if a file of this size is large enough to be shared.
    pub fn suit(len: u64) -> bool {
        len > 2 * PIECE
    }

    /// Creates the pieces of a file.
    pub fn new(len: u64) -> Self {
        let (busy, concluded) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self { len, next: AtomicU64::new(0), busy, concluded }
    }

    /// Registers a worker that is about to take pieces.
    pub fn begin(&self) {
        self.busy.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the number of pieces.
    pub fn count(&self) -> usize {
        self.len.div_ceil(PIECE) as usize
    }

    /// Returns the next piece, in ascending order.
    pub fn take(&self) -> Option<Range<u64>> {
        let from = self.next.fetch_add(PIECE, Ordering::Relaxed);
        (from < self.len).then(|| from..self.len.min(from + PIECE))
    }

    /// Unregisters a worker after its last piece. Returns `true` for exactly one worker, when all pieces are done.
    pub fn done(&self) -> bool {
        // AcqRel: the last worker must see the results of all others. A worker that arrives later finds no piece.
        self.busy.fetch_sub(1, Ordering::AcqRel) == 1
            && !self.concluded.swap(true, Ordering::AcqRel)
    }
}

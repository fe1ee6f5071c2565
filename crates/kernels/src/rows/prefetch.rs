//! How far ahead of its loads `stream` asks for the source: a hint, for the whole process. Elsewhere
//! than on x86-64 no row looks at it.

use core::sync::atomic::{AtomicUsize, Ordering};

/// Bytes ahead of the load; 0 leaves it to the CPU.
static AHEAD: AtomicUsize = AtomicUsize::new(0);

/// How many bytes ahead of its loads `stream` prefetches; 0, as at the start, is not at all.
#[inline]
pub fn prefetch_distance() -> usize {
    AHEAD.load(Ordering::Relaxed)
}

/// Sets how many bytes ahead `stream` prefetches, for the whole process.
#[inline]
pub fn set_prefetch_distance(bytes: usize) {
    // Relaxed: a hint, and no other memory depends on it.
    AHEAD.store(bytes, Ordering::Relaxed);
}

//! Prefetch distance of `stream`: a hint for the whole process. Only kernels for x86-64 use it.

use core::sync::atomic::{AtomicUsize, Ordering};

/// Bytes ahead of the load. 0 leaves prefetching to the CPU.
static AHEAD: AtomicUsize = AtomicUsize::new(0);

/// Returns how many bytes ahead of its loads `stream` prefetches. 0, the default, disables prefetching.
#[inline]
pub fn prefetch_distance() -> usize {
    AHEAD.load(Ordering::Relaxed)
}

/// Sets how many bytes ahead of its loads `stream` prefetches, for the whole process.
#[inline]
pub fn set_prefetch_distance(bytes: usize) {
    // Relaxed: a hint, and no other memory depends on it.
    AHEAD.store(bytes, Ordering::Relaxed);
}

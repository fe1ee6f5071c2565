//! Memory that two threads work on by an agreement the compiler does not know.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Zeroed, page-aligned bytes behind a raw pointer.
#[derive(Debug)]
pub struct Memory {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it is plain bytes; who may touch which of them when is the agreement of its users, and
// every access goes through the unsafe `at`.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// So many bytes, at least one.
    pub fn new(len: usize) -> Self {
        let layout = Layout::from_size_align(len.max(1), 4096).expect("a page divides its size");
        // SAFETY: the size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        Self { start: NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout)), layout }
    }

    /// The byte at `offset`, which is for the caller to keep inside: a comparison here would be three a
    /// packet, a part of what is measured.
    #[inline(always)]
    pub fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < self.layout.size(), "outside the memory");
        self.start.as_ptr().wrapping_add(offset)
    }

    /// The bytes `offset..offset + len`.
    ///
    /// # Safety
    /// They lie inside, and nobody else touches them while the reference lives.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "the agreement is the caller's to keep")]
    pub unsafe fn bytes(&self, offset: usize, len: usize) -> &mut [u8] {
        debug_assert!(offset + len <= self.layout.size(), "outside the memory");
        // SAFETY: inside the allocation and the caller's alone, says the caller; initialised.
        unsafe { std::slice::from_raw_parts_mut(self.at(offset), len) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `new`.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

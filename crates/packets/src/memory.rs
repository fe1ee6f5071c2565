//! Memory that two threads share. They agree at run time which of them may access which bytes; the compiler cannot
//! check this.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Zeroed, page-aligned bytes behind a raw pointer.
#[derive(Debug)]
pub struct PacketMemory {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory is plain bytes. Its users agree on which thread may access which bytes at a time, and every access is unsafe
// code on a pointer from `at` or a slice from `bytes`.
unsafe impl Send for PacketMemory {}
// SAFETY: as above.
unsafe impl Sync for PacketMemory {}

impl PacketMemory {
    /// Allocates `len` bytes, at least one.
    pub fn new(len: usize) -> Self {
        let layout = Layout::from_size_align(len.max(1), 4096).expect("a page divides its size");
        // SAFETY: the size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        Self { start: NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout)), layout }
    }

    /// Returns the address of the byte at `offset`. The caller must keep the offset in bounds: a check here would cost three
    /// comparisons per packet and distort the measurement.
    #[inline(always)]
    pub fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < self.layout.size(), "outside the memory");
        self.start.as_ptr().wrapping_add(offset)
    }

    /// Returns the bytes `offset..offset + len`.
    ///
    /// # Safety
    /// The bytes lie inside the memory, and no other code accesses them during the lifetime of the reference.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "the agreement is the caller's to keep")]
    pub unsafe fn bytes(&self, offset: usize, len: usize) -> &mut [u8] {
        debug_assert!(offset + len <= self.layout.size(), "outside the memory");
        // SAFETY: the caller guarantees that the bytes are inside the allocation and that no other reference to them
        // exists. `alloc_zeroed` initialised them.
        unsafe { std::slice::from_raw_parts_mut(self.at(offset), len) }
    }
}

impl Drop for PacketMemory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `new`.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

//! The memory of a ring's buffers: one allocation, divided into equal parts, one per slot.

use crate::Errno;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// A single allocation of `slots` buffers. `Uring::check` checks the bounds.
pub(super) struct Area {
    base: NonNull<u8>,
    layout: Layout,
    slots: usize,
    stride: usize,
    len: usize,
    leaked: bool,
}

// SAFETY: plain memory owned by this value alone.
unsafe impl Send for Area {}

impl Area {
    pub(super) fn new(slots: usize, len: usize, align: usize) -> Result<Self, Errno> {
        let part = Layout::from_size_align(len, align).map_err(|_| Errno::INVAL)?;
        let stride = part.pad_to_align().size();
        let whole = stride.checked_mul(slots).ok_or(Errno::NOMEM)?;
        let layout = Layout::from_size_align(whole, align).map_err(|_| Errno::NOMEM)?;
        assert!(layout.size() > 0, "Uring::new refuses empty buffers");
        // SAFETY: the size is not zero (asserted above).
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Errno::NOMEM)?;
        Ok(Self { base, layout, slots, stride, len, leaked: false })
    }

    /// Returns the size of one buffer in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn at(&self, slot: usize, byte: usize) -> *mut u8 {
        assert!(slot < self.slots && byte <= self.len, "checked before every operation");
        // SAFETY: slot and byte are inside the allocation (asserted above).
        unsafe { self.base.as_ptr().add(slot * self.stride + byte) }
    }

    /// # Safety
    ///
    /// The slot must not be written while the slice lives.
    pub(super) unsafe fn bytes(&self, slot: usize) -> &[u8] {
        // SAFETY: `at` is inside the allocation, which was zeroed when allocated; the caller
        // guarantees that it is not written.
        unsafe { std::slice::from_raw_parts(self.at(slot, 0), self.len) }
    }

    /// # Safety
    ///
    /// No other code, including the kernel, may access the slot while the slice lives.
    pub(super) unsafe fn bytes_mut(&mut self, slot: usize) -> &mut [u8] {
        // SAFETY: as in `bytes`.
        unsafe { std::slice::from_raw_parts_mut(self.at(slot, 0), self.len) }
    }

    /// Returns one vector per buffer, for registration.
    pub(super) fn vectors(&self) -> Vec<libc::iovec> {
        (0..self.slots)
            .map(|slot| libc::iovec { iov_base: self.at(slot, 0).cast(), iov_len: self.len })
            .collect()
    }

    /// Prevents the memory from being freed, because the kernel may still write to it.
    pub(super) fn leak(&mut self) {
        self.leaked = true;
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        if !self.leaked {
            // SAFETY: allocated in `new` with this layout, freed only here.
            unsafe { dealloc(self.base.as_ptr(), self.layout) };
        }
    }
}

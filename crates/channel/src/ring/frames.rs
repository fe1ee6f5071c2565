//! Access to the frames in the memory of a ring.

use crate::layout::FRAME_HEADER;
use crate::shared::memory::SideMemory;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
use std::ptr::NonNull;

/// The header of a frame, as words.
pub(crate) type FrameWords = [u64; FRAME_HEADER / 8];

impl SideMemory {
    /// Returns the address of a position. At least `capacity` bytes are mapped from there on.
    #[inline]
    pub(crate) fn at(&self, position: u64) -> NonNull<u8> {
        let offset = (position & (self.geometry.capacity - 1)) as usize;
        debug_assert!(offset < self.mirror.data_len().max(1));
        // SAFETY: The offset is below the capacity, and the data area is mapped twice in a row.
        unsafe { self.mirror.data().add(offset) }
    }

    /// Prefetches the cache line of a position, without waiting for it.
    #[inline]
    pub(crate) fn prefetch(&self, position: u64) {
        let address = self.at(position);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: Every x86-64 processor has the instruction, and it has no effect except on the caches.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(address.as_ptr().cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        // SAFETY: The byte at a position is mapped. Every value is a valid u8, and the value is not used.
        let _ = unsafe { address.read_volatile() };
    }

    /// Copies the header of a frame with four loads, which the compiler must not repeat.
    #[inline]
    pub(crate) fn frame_header(&self, position: u64) -> FrameWords {
        let from = self.at(position).cast::<u64>();
        std::array::from_fn(|at| {
            // SAFETY: The 32 bytes from a position on are mapped, and `at` is below 4.
            let from = unsafe { from.add(at) };
            // SAFETY: The address is aligned, because positions are multiples of 64. Every value is a valid u64.
            unsafe { from.read_volatile() }
        })
    }

    /// Returns the payload of a frame, in place.
    ///
    /// # Safety
    ///
    /// `len` plus the header must be at most the capacity. No process may write these bytes while the slice lives.
    #[inline]
    pub(crate) unsafe fn payload(&self, position: u64, len: usize) -> &[u8] {
        // SAFETY: The caller guarantees that the header and the payload fit the capacity; see `at`.
        let first = unsafe { self.at(position).add(FRAME_HEADER) };
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), len) }
    }

    /// Copies a payload while its owner may be changing it. Panics if `into.len()` plus the header exceeds the
    /// capacity.
    pub(crate) fn copy_payload(&self, position: u64, into: &mut [u8]) {
        assert!(into.len() + FRAME_HEADER <= self.geometry.capacity as usize);
        // SAFETY: The header and the payload fit the capacity, as asserted above; see `at`.
        let first = unsafe { self.at(position).add(FRAME_HEADER) };
        // SAFETY: The source is mapped for that length, and `into` is private memory.
        unsafe { std::ptr::copy_nonoverlapping(first.as_ptr(), into.as_mut_ptr(), into.len()) };
        // Force the compiler to finish the copy here, so that later checks never read the source again.
        std::hint::black_box(into.as_mut_ptr());
    }

    /// Writes a header to our own memory, beyond the head, where no consumer reads.
    #[inline]
    pub(crate) fn write_header(&mut self, position: u64, header: FrameWords) {
        let to = self.at(position).cast::<FrameWords>();
        // SAFETY: The 32 bytes from a position on are mapped for writing, and aligned, because positions are multiples
        // of 64. `&mut self` excludes other writers.
        unsafe { to.write(header) };
    }

    /// Returns the payload of a frame in our own memory, for writing.
    ///
    /// # Safety
    ///
    /// `len` plus the header must be at most the capacity. The memory must be our own, and the bytes not yet committed.
    #[inline]
    pub(crate) unsafe fn payload_mut(&mut self, position: u64, len: usize) -> &mut [u8] {
        // SAFETY: The caller guarantees that the header and the payload fit the capacity; see `at`.
        let first = unsafe { self.at(position).add(FRAME_HEADER) };
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(first.as_ptr(), len) }
    }
}

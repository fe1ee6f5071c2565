//! Frames in the memory of a ring.

use crate::layout::FRAME_HEADER;
use crate::shared::memory::Memory;
use std::ptr::NonNull;

/// The words before a frame's payload.
pub(crate) type Header = [u64; FRAME_HEADER / 8];

impl Memory {
    /// Where a position lies. The next `capacity` bytes from there are mapped.
    #[inline]
    pub(crate) fn at(&self, position: u64) -> NonNull<u8> {
        let offset = (position & (self.geometry.capacity - 1)) as usize;
        debug_assert!(offset < self.mirror.data_len().max(1));
        // SAFETY: offset < capacity, and the data area is mapped twice.
        unsafe { self.mirror.data().add(offset) }
    }

    /// Asks for the cache line of a position, and waits for nothing.
    #[inline]
    pub(crate) fn touch(&self, position: u64) {
        // SAFETY: a position's byte is mapped; any value is a u8, and it is not used.
        let _ = unsafe { self.at(position).read_volatile() };
    }

    /// A frame's header, copied out in four loads that the compiler may not repeat.
    #[inline]
    pub(crate) fn frame_header(&self, position: u64) -> Header {
        let from = self.at(position).cast::<u64>();
        std::array::from_fn(|at| {
            // SAFETY: 32 bytes from a position are mapped, and `at` < 4.
            let from = unsafe { from.add(at) };
            // SAFETY: aligned, for positions are multiples of 64; any bytes are a u64.
            unsafe { from.read_volatile() }
        })
    }

    /// The payload of a frame, where it lies.
    ///
    /// # Safety
    ///
    /// `len` plus the header must be at most the capacity, and nobody may write these bytes while
    /// the slice lives.
    #[inline]
    pub(crate) unsafe fn payload(&self, position: u64, len: usize) -> &[u8] {
        // SAFETY: the caller's promise; see `at`.
        let first = unsafe { self.at(position).add(FRAME_HEADER) };
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), len) }
    }

    /// Copies a payload that its owner may be changing. `len` plus the header must be at most the
    /// capacity.
    pub(crate) fn copy_payload(&self, position: u64, into: &mut [u8]) {
        assert!(into.len() + FRAME_HEADER <= self.geometry.capacity as usize);
        // SAFETY: asserted above; see `at`.
        let first = unsafe { self.at(position).add(FRAME_HEADER) };
        // SAFETY: mapped for that length; `into` is private memory.
        unsafe { std::ptr::copy_nonoverlapping(first.as_ptr(), into.as_mut_ptr(), into.len()) };
        // The copy must be made: what is judged afterwards may not be read from the source again.
        std::hint::black_box(into.as_mut_ptr());
    }

    /// Writes to our own memory, behind the head, where no consumer looks.
    #[inline]
    pub(crate) fn write_header(&mut self, position: u64, header: Header) {
        let to = self.at(position).cast::<Header>();
        // SAFETY: 32 bytes from a position are mapped for writing, aligned because positions are
        // multiples of 64; &mut self.
        unsafe { to.write(header) };
    }

    /// The payload of a frame in our own memory, to be written.
    ///
    /// # Safety
    ///
    /// `len` plus the header must be at most the capacity, the memory our own, and the bytes not
    /// committed.
    #[inline]
    pub(crate) unsafe fn payload_mut(&mut self, position: u64, len: usize) -> &mut [u8] {
        // SAFETY: the caller's promise; see `at`.
        let first = unsafe { self.at(position).add(FRAME_HEADER) };
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(first.as_ptr(), len) }
    }
}

//! Memory that both sides of a transfer write. Its words are accessed only as atomics, because no Rust reference may
//! cover bytes that another process can write. [`super::control`] implements waiting for changes of the words.

use rustix::fd::AsFd;
use std::sync::atomic::{AtomicU32, AtomicU64};
use thalweg_sys::{
    Errno,
    memfd::{self, FailedCall},
    region::{Region, SealFlags, Sharing, is_sealed, seal},
};

/// Name of bulk transfer memory in `/proc/PID/maps`.
pub(crate) const NAME: &str = "thalweg-bulk";

/// Number of bytes reserved for words, at the start of the memory.
pub(crate) const PAGE: usize = 4096;

#[derive(Debug)]
pub(crate) struct Joint(Region);

impl Joint {
    /// Creates memory of `len` bytes and seals its size. Also returns the descriptor for the peer.
    pub fn create(len: usize) -> Result<(Self, rustix::fd::OwnedFd), FailedCall> {
        let fd = memfd::create(NAME, len as u64)?;
        let sealed = seal(&fd, SealFlags::SHRINK | SealFlags::GROW);
        sealed.map_err(FailedCall::of("F_ADD_SEALS"))?;
        let region = Region::of_file(&fd, len, Sharing::Write);
        let region = region.map_err(FailedCall::of("mmap"))?;
        Ok((Self(region), fd))
    }

    /// Maps memory that the peer created. Returns EACCES if the peer could shrink the memory, or if the memory has
    /// holes: their pages would be charged to this process.
    pub fn adopt(fd: impl AsFd, len: usize) -> Result<Self, Errno> {
        if !is_sealed(&fd, SealFlags::SHRINK, len as u64) || !memfd::is_whole(&fd) {
            return Err(Errno::ACCESS);
        }
        Region::of_file(&fd, len, Sharing::Write).map(Self)
    }

    /// Returns the address of the first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.0.as_ptr()
    }

    /// Returns the 32-bit word at byte offset `at`. Panics if the word is unaligned or outside the mapping.
    pub fn u32(&self, at: usize) -> &AtomicU32 {
        assert!(
            at.is_multiple_of(4) && at + 4 <= self.0.len(),
            "the offset is unaligned or outside the mapping"
        );
        // SAFETY: The word lies inside the mapping, as checked above.
        let word = unsafe { self.0.as_ptr().add(at) };
        // SAFETY: The word is mapped and writable while `self` is borrowed, and aligned, because the mapping starts on
        // a page. Both sides access it as an atomic.
        unsafe { AtomicU32::from_ptr(word.cast()) }
    }

    /// Returns the 64-bit word at byte offset `at`. Panics like [`Joint::u32`].
    pub fn u64(&self, at: usize) -> &AtomicU64 {
        assert!(
            at.is_multiple_of(8) && at + 8 <= self.0.len(),
            "the offset is unaligned or outside the mapping"
        );
        // SAFETY: as above.
        let word = unsafe { self.0.as_ptr().add(at) };
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(word.cast()) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn memory_that_may_shrink_or_is_short_is_not_adopted() {
        let fd = memfd::create(NAME, PAGE as u64).unwrap();
        assert_eq!(Joint::adopt(&fd, PAGE).unwrap_err(), Errno::ACCESS);
        let (_page, fd) = Joint::create(PAGE).unwrap();
        assert_eq!(Joint::adopt(&fd, 2 * PAGE).unwrap_err(), Errno::ACCESS);
    }
}

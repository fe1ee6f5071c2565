//! Memory that both sides of a transfer write. Its words are accessed as atomics, because no reference
//! may cover bytes that another process can write. [`super::control`] implements waiting for changes.

use rustix::fd::AsFd;
use std::sync::atomic::{AtomicU32, AtomicU64};
use thalweg_sys::{
    Errno,
    memfd::{self, FailedCall},
    region::{Region, SealFlags, Sharing, is_sealed, seal},
};

/// Name of bulk transfer memory in `/proc/PID/maps`.
pub(crate) const NAME: &str = "thalweg-bulk";

/// Number of bytes at the start that are reserved for words.
pub(crate) const PAGE: usize = 4096;

#[derive(Debug)]
pub(crate) struct Joint(Region);

impl Joint {
    /// Creates memory of `len` bytes, sealed against resizing. Also returns the descriptor to pass on.
    pub fn create(len: usize) -> Result<(Self, rustix::fd::OwnedFd), FailedCall> {
        let fd = memfd::create(NAME, len as u64)?;
        let sealed = seal(&fd, SealFlags::SHRINK | SealFlags::GROW);
        sealed.map_err(FailedCall::of("F_ADD_SEALS"))?;
        let region = Region::of_file(&fd, len, Sharing::Write);
        let region = region.map_err(FailedCall::of("mmap"))?;
        Ok((Self(region), fd))
    }

    /// Maps memory that the peer created. Returns EACCES if the peer could shrink the memory. Returns EACCES also if it
    /// has holes, because this process would pay for the pages of the holes.
    pub fn adopt(fd: impl AsFd, len: usize) -> Result<Self, Errno> {
        if !is_sealed(&fd, SealFlags::SHRINK, len as u64) || !memfd::is_whole(&fd) {
            return Err(Errno::ACCESS);
        }
        Region::of_file(&fd, len, Sharing::Write).map(Self)
    }

    /// Wraps memory that cannot shrink. It must be writable and at least one page long.
    pub fn over(region: Region) -> Self {
        assert!(
            region.is_writable() && region.len() >= PAGE,
            "the mapping is shorter than a page or read-only"
        );
        Self(region)
    }

    /// Returns the address of the first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.0.as_ptr()
    }

    /// Returns the 32-bit word at byte offset `at`.
    pub fn u32(&self, at: usize) -> &AtomicU32 {
        assert!(
            at.is_multiple_of(4) && at + 4 <= self.0.len(),
            "the offset is unaligned or outside the mapping"
        );
        // SAFETY: checked above to lie inside the mapping, which starts on a page.
        let word = unsafe { self.0.as_ptr().add(at) };
        // SAFETY: The word is mapped, writable and aligned for as long as `self` is borrowed; both
        // sides access it with atomics.
        unsafe { AtomicU32::from_ptr(word.cast()) }
    }

    /// Returns the 64-bit word at byte offset `at`.
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

//! Memory that both sides of a transfer write. Words in it are atomics: what another process may
//! write is never behind a reference. Waiting for a change goes through [`super::control`].

use rustix::fd::AsFd;
use std::sync::atomic::{AtomicU32, AtomicU64};
use thalweg_sys::{
    Errno,
    memfd::{self, FailedCall},
    region::{Region, SealFlags, Sharing, is_sealed, seal},
};

/// What the memory of a bulk transfer is called in `/proc/PID/maps`.
pub(crate) const NAME: &str = "thalweg-bulk";

/// Bytes in front that are kept for words.
pub(crate) const PAGE: usize = 4096;

#[derive(Debug)]
pub(crate) struct Joint(Region);

impl Joint {
    /// Fresh memory of `len` bytes, sealed to keep its size, and the descriptor to hand over.
    pub fn create(len: usize) -> Result<(Self, rustix::fd::OwnedFd), FailedCall> {
        let fd = memfd::create(NAME, len as u64)?;
        let sealed = seal(&fd, SealFlags::SHRINK | SealFlags::GROW);
        sealed.map_err(FailedCall::of("F_ADD_SEALS"))?;
        let region = Region::of_file(&fd, len, Sharing::Write);
        let region = region.map_err(FailedCall::of("mmap"))?;
        Ok((Self(region), fd))
    }

    /// Memory that the other side made. EACCES if it could be shrunk below us, or if its pages would
    /// be ours to pay for.
    pub fn adopt(fd: impl AsFd, len: usize) -> Result<Self, Errno> {
        if !is_sealed(&fd, SealFlags::SHRINK, len as u64) || !memfd::is_whole(&fd) {
            return Err(Errno::ACCESS);
        }
        Region::of_file(&fd, len, Sharing::Write).map(Self)
    }

    /// Over memory that cannot shrink, writable and at least a page long.
    pub fn over(region: Region) -> Self {
        assert!(region.is_writable() && region.len() >= PAGE, "no room for words");
        Self(region)
    }

    /// The first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.0.as_ptr()
    }

    /// The word at byte `at`.
    pub fn u32(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.0.len(), "a word outside its page");
        // SAFETY: checked above to lie inside the mapping, which starts on a page.
        let word = unsafe { self.0.as_ptr().add(at) };
        // SAFETY: mapped, writable and aligned for as long as self is borrowed; both sides use
        // atomics on it.
        unsafe { AtomicU32::from_ptr(word.cast()) }
    }

    /// The double word at byte `at`.
    pub fn u64(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.0.len(), "a word outside its page");
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

//! Kernels that were checked against this CPU, callable from safe code.

use core::ops::RangeBounds;

use crate::lengths::{part, same_length};
use crate::row::{Checksum, CopyFn, Fill, FillFn, Hash, Kernel};
use crate::tuned;

/// A copy kernel that this machine can run. It keeps the function that was current at its creation. If bands are installed later,
/// a `Ready` of `tuned` needs one more comparison to reach them.
#[derive(Debug, Clone, Copy)]
pub struct Ready {
    row: &'static Kernel,
    copy: CopyFn,
    move_: Option<CopyFn>,
}

impl Kernel {
    /// Returns the kernel in a form that safe code can call, if this machine can run it.
    pub fn ready(&'static self) -> Option<Ready> {
        let (copy, move_) = (tuned::copies_of(self), tuned::moves_of(self));
        (self.is_available)().then_some(Ready { row: self, copy, move_ })
    }
}

impl Ready {
    /// Returns the row.
    pub fn kernel(self) -> &'static Kernel {
        self.row
    }

    /// Copies `src` over `dst`.
    ///
    /// # Panics
    /// If the lengths differ.
    #[inline]
    #[track_caller]
    pub fn copy(self, dst: &mut [u8], src: &[u8]) {
        same_length(dst, src);
        // SAFETY: two slices of that length, one of them exclusive.
        unsafe { self.copy_raw(dst.as_mut_ptr(), src.as_ptr(), src.len()) };
    }

    /// Copies a part of `bytes` to another place in it, as `slice::copy_within` does. Returns `false`, and does nothing, if this
    /// kernel does not support overlapping regions.
    ///
    /// # Panics
    /// If either part does not lie inside `bytes`.
    #[track_caller]
    #[must_use = "the row may have no such copy"]
    pub fn copy_within(self, bytes: &mut [u8], src: impl RangeBounds<usize>, to: usize) -> bool {
        let (start, n) = part(bytes.len(), &src, to);
        let Some(move_) = self.move_ else { return false };
        let base = bytes.as_mut_ptr();
        // SAFETY: both parts lie inside the exclusive slice; `ready` checked the CPU.
        unsafe { move_(base.wrapping_add(to), base.wrapping_add(start), n) };
        true
    }

    /// Copies between memory that Rust cannot borrow, such as a mapping shared with other processes.
    ///
    /// # Safety
    /// `src` is readable and `dst` writable for `n` bytes, and they do not overlap.
    #[inline]
    pub unsafe fn copy_raw(self, dst: *mut u8, src: *const u8, n: usize) {
        // SAFETY: guaranteed by the caller; `ready` checked the CPU.
        unsafe { (self.copy)(dst, src, n) };
    }
}

/// A fill that this machine can run. For `tuned`, see [`Ready`].
#[derive(Debug, Clone, Copy)]
pub struct ReadyFill {
    row: &'static Fill,
    fill: FillFn,
}

impl Fill {
    /// Returns the fill in a form that safe code can call, if this machine can run it.
    pub fn ready(&'static self) -> Option<ReadyFill> {
        let fill = tuned::fills_of(self);
        (self.is_available)().then_some(ReadyFill { row: self, fill })
    }
}

impl ReadyFill {
    /// Returns the row.
    pub fn row(self) -> &'static Fill {
        self.row
    }

    /// Sets every byte of `dst`.
    #[inline]
    pub fn fill(self, dst: &mut [u8], byte: u8) {
        // SAFETY: an exclusive slice of that length; `ready` checked the CPU.
        unsafe { (self.fill)(dst.as_mut_ptr(), byte.into(), dst.len()) };
    }
}

/// A checksumming copy that this machine can run.
#[derive(Debug, Clone, Copy)]
pub struct ReadyChecksum(&'static Checksum);

impl Checksum {
    /// Returns the row in a form that safe code can call, if this machine can run it.
    pub fn ready(&'static self) -> Option<ReadyChecksum> {
        (self.is_available)().then_some(ReadyChecksum(self))
    }
}

impl ReadyChecksum {
    /// Returns the row.
    pub fn row(self) -> &'static Checksum {
        self.0
    }

    /// Copies `src` over `dst` and returns its CRC32C, continued from `crc` (0 at the start).
    ///
    /// # Panics
    /// If the lengths differ.
    #[track_caller]
    #[must_use]
    pub fn copy(self, dst: &mut [u8], src: &[u8], crc: u32) -> u32 {
        same_length(dst, src);
        // SAFETY: two slices of that length, one of them exclusive; `ready` checked the CPU.
        unsafe { (self.0.copy)(dst.as_mut_ptr(), src.as_ptr(), src.len(), crc) }
    }

    /// Returns the CRC32C of `src`, continued from `crc` (0 at the start).
    #[must_use]
    pub fn sum(self, src: &[u8], crc: u32) -> u32 {
        // SAFETY: a slice of that length; `ready` checked the CPU.
        unsafe { (self.0.sum)(src.as_ptr(), src.len(), crc) }
    }
}

/// A hashing copy that this machine can run.
#[derive(Debug, Clone, Copy)]
pub struct ReadyHash(&'static Hash);

impl Hash {
    /// Returns the row in a form that safe code can call, if this machine can run it.
    pub fn ready(&'static self) -> Option<ReadyHash> {
        (self.is_available)().then_some(ReadyHash(self))
    }
}

impl ReadyHash {
    /// Returns the row.
    pub fn row(self) -> &'static Hash {
        self.0
    }

    /// Copies `src` over `dst` and returns its hash.
    ///
    /// # Panics
    /// If the lengths differ.
    #[track_caller]
    #[must_use]
    pub fn copy(self, dst: &mut [u8], src: &[u8]) -> u64 {
        same_length(dst, src);
        // SAFETY: two slices of that length, one of them exclusive; `ready` checked the CPU.
        unsafe { (self.0.copy)(dst.as_mut_ptr(), src.as_ptr(), src.len()) }
    }

    /// Returns the hash of `src`.
    #[must_use]
    pub fn sum(self, src: &[u8]) -> u64 {
        // SAFETY: a slice of that length; `ready` checked the CPU.
        unsafe { (self.0.sum)(src.as_ptr(), src.len()) }
    }
}

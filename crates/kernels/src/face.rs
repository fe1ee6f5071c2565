//! Safe functions for callers that do not choose a kernel. Each calls through one pointer, which is resolved once.

use core::ops::RangeBounds;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::entry;
use crate::lengths::{part, same_length};
use crate::row::{Checksum, Hash};

/// Copies `src` over `dst` with the kernel installed for this size, or with the C library.
///
/// # Panics
/// If the lengths differ.
#[inline]
#[track_caller]
pub fn copy(dst: &mut [u8], src: &[u8]) {
    same_length(dst, src);
    // SAFETY: two slices of that length, one of them exclusive.
    unsafe { entry::copy(dst.as_mut_ptr(), src.as_ptr(), src.len()) };
}

/// Copies a part of `bytes` to another place in it, as `slice::copy_within` does.
///
/// # Panics
/// If either part does not lie inside `bytes`.
#[inline]
#[track_caller]
pub fn copy_within(bytes: &mut [u8], src: impl RangeBounds<usize>, to: usize) {
    let (start, n) = part(bytes.len(), &src, to);
    let base = bytes.as_mut_ptr();
    // SAFETY: `part` checked that both lie inside the exclusive slice.
    unsafe { entry::move_(base.wrapping_add(to), base.wrapping_add(start), n) };
}

/// Sets every byte of `dst`.
#[inline]
pub fn fill(dst: &mut [u8], byte: u8) {
    // SAFETY: an exclusive slice of that length.
    unsafe { entry::fill(dst.as_mut_ptr(), byte.into(), dst.len()) };
}

/// Copies `src` over `dst` and returns its CRC32C, continued from `crc` (0 at the start). Memory is read once.
///
/// # Panics
/// If the lengths differ.
#[inline]
#[must_use]
#[track_caller]
pub fn copy_crc32c(dst: &mut [u8], src: &[u8], crc: u32) -> u32 {
    same_length(dst, src);
    // SAFETY: two slices of that length, one of them exclusive; the row is available.
    unsafe { (checksum().copy)(dst.as_mut_ptr(), src.as_ptr(), src.len(), crc) }
}

/// Returns the CRC32C of `src`, continued from `crc` (0 at the start).
#[inline]
#[must_use]
pub fn crc32c(src: &[u8], crc: u32) -> u32 {
    // SAFETY: a slice of that length; the row is available.
    unsafe { (checksum().sum)(src.as_ptr(), src.len(), crc) }
}

/// Copies `src` over `dst` and returns its XXH3 (64 bits, seed 0). Memory is read once.
///
/// # Panics
/// If the lengths differ.
#[inline]
#[must_use]
#[track_caller]
pub fn copy_xxh3(dst: &mut [u8], src: &[u8]) -> u64 {
    same_length(dst, src);
    // SAFETY: two slices of that length, one of them exclusive; the row is available.
    unsafe { (hash().copy)(dst.as_mut_ptr(), src.as_ptr(), src.len()) }
}

/// Returns the XXH3 of `src` (64 bits, seed 0).
#[inline]
#[must_use]
pub fn xxh3(src: &[u8]) -> u64 {
    // SAFETY: a slice of that length; the row is available.
    unsafe { (hash().sum)(src.as_ptr(), src.len()) }
}

#[inline]
fn checksum() -> &'static Checksum {
    static RESOLVED: FirstChoice<Checksum> = FirstChoice::unknown();
    RESOLVED.or(Checksum::first)
}

#[inline]
fn hash() -> &'static Hash {
    static RESOLVED: FirstChoice<Hash> = FirstChoice::unknown();
    RESOLVED.or(Hash::first)
}

/// The first available row of a table, looked up once.
struct FirstChoice<R: 'static>(AtomicPtr<R>);

impl<R: Sync> FirstChoice<R> {
    const fn unknown() -> Self {
        FirstChoice(AtomicPtr::new(core::ptr::null_mut()))
    }

    #[inline]
    fn or(&self, find: fn() -> &'static R) -> &'static R {
        let row = self.0.load(Ordering::Relaxed);
        if row.is_null() {
            let first = find();
            // Relaxed: the row existed before the program started.
            self.0.store(core::ptr::from_ref(first).cast_mut(), Ordering::Relaxed);
            return first;
        }
        // SAFETY: only references to static rows are stored, and no code writes through the pointer.
        unsafe { &*row }
    }
}

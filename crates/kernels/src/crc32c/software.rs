//! Eight bytes at a time with lookup tables: for CPUs without a crc32 instruction, and as the reference for tests.

use super::poly;
use crate::row::{ALWAYS, Checksum};
use crate::word::{Word, load, store};

pub const ROW: Checksum = Checksum {
    name: "crc32c-software",
    summary: "eight bytes at a time through tables",
    is_available: ALWAYS,
    copy,
    sum,
};

static TABLES: [[u32; 256]; 8] = poly::tables();

/// # Safety
/// The contract of [`Checksum::copy`].
unsafe fn copy(dst: *mut u8, src: *const u8, n: usize, crc: u32) -> u32 {
    // SAFETY: guaranteed by the caller.
    unsafe { run::<true>(dst, src, n, crc) }
}

/// # Safety
/// The contract of [`Checksum::sum`].
unsafe fn sum(src: *const u8, n: usize, crc: u32) -> u32 {
    // SAFETY: guaranteed by the caller; nothing is written.
    unsafe { run::<false>(core::ptr::null_mut(), src, n, crc) }
}

/// # Safety
/// `src` is readable for `n` bytes; if `COPY`, `dst` is writable for as many.
#[inline(always)]
unsafe fn run<const COPY: bool>(dst: *mut u8, src: *const u8, n: usize, crc: u32) -> u32 {
    let mut crc = !crc;
    let mut at = 0;
    while at + 8 <= n {
        // SAFETY: `at + 8 <= n`.
        let word: u64 = unsafe { take::<COPY, _>(dst, src, at) };
        crc = eight(u64::from_le(word) ^ u64::from(crc));
        at += 8;
    }
    while at < n {
        // SAFETY: `at < n`.
        let byte: u8 = unsafe { take::<COPY, _>(dst, src, at) };
        crc = crc >> 8 ^ TABLES[0][(crc as u8 ^ byte) as usize];
        at += 1;
    }
    !crc
}

#[inline(always)]
fn eight(word: u64) -> u32 {
    let bytes = word.to_le_bytes();
    let mut crc = 0;
    let mut i = 0;
    while i < 8 {
        crc ^= TABLES[7 - i][bytes[i] as usize];
        i += 1;
    }
    crc
}

/// Loads one word from the source. If `COPY`, also writes it to the sink.
///
/// # Safety
/// The word lies inside `src` and, if `COPY`, inside `dst`.
#[inline(always)]
pub unsafe fn take<const COPY: bool, W: Word>(dst: *mut u8, src: *const u8, at: usize) -> W {
    // SAFETY: the caller guarantees that the word lies inside the source.
    let [word] = unsafe { load::<W, 1>(src, at) };
    if COPY {
        // SAFETY: the caller guarantees that the word lies inside the sink.
        unsafe { store(dst, at, [word]) };
    }
    word
}

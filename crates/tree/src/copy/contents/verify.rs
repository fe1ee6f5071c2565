//! Reads a copy and its source again and compares them by a hash.
//!
//! The comparison proves that both files read as equal now. It finds errors of the copying code, torn writes, and a
//! source that changed. The comparison first drops clean pages from the page cache (`POSIX_FADV_DONTNEED`). Dirty pages
//! stay, so a fresh copy is mostly read from memory. [`CopyOptions::verify_device`](crate::CopyOptions::verify_device)
//! syncs the copy first.

use std::os::fd::BorrowedFd;
use thalweg_core::Cancelled;
use thalweg_sys::Errno;

use crate::{
    Hash,
    error::{Attempt, CopyFailure, at_sink, at_source},
    hashing::{Digest, hash_file},
    read::forget_cached,
};

/// The point at which the comparison of a copy with its source ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SinkEnd {
    /// At the end of the copy.
    Own,
    /// At the end of the source, because a device may be larger than the data written to it.
    OfSource,
}

/// A copy and its source, open for reading.
#[derive(Clone, Copy)]
pub(crate) struct ReadEnds<'a> {
    pub source: BorrowedFd<'a>,
    pub copy: BorrowedFd<'a>,
}

fn digest(
    fd: BorrowedFd<'_>,
    hash: Hash,
    buffer: &mut [u8],
    most: u64,
    go_on: &impl Fn() -> Result<(), Cancelled>,
    failed: impl Fn(Errno) -> CopyFailure,
) -> Attempt<(u64, Digest)> {
    forget_cached(fd);
    hash_file(fd, hash, buffer, most, go_on, failed)
}

/// Returns `true` if both files contain equal bytes.
pub(crate) fn are_equal(
    ends: ReadEnds<'_>,
    end: SinkEnd,
    hash: Hash,
    buffer: &mut [u8],
    go_on: impl Fn() -> Result<(), Cancelled>,
) -> Attempt<bool> {
    let of_source = digest(ends.source, hash, buffer, u64::MAX, &go_on, at_source("pread"))?;
    let most = if end == SinkEnd::OfSource { of_source.0 } else { u64::MAX };
    Ok(of_source == digest(ends.copy, hash, buffer, most, &go_on, at_sink("pread"))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Write, os::fd::AsFd};

    #[test]
    fn one_other_byte_is_found_by_both_hashes() {
        let file = |bytes: &[u8]| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(bytes).unwrap();
            file
        };
        let mut bytes = vec![7; 100_000];
        let (a, b) = (file(&bytes), file(&bytes));
        bytes[99_999] = 8;
        let c = file(&bytes);
        let short = file(&bytes[..99_999]);
        for hash in [Hash::Blake3, Hash::Xxh3] {
            let equal = |x: &std::fs::File, y: &std::fs::File| {
                let ends = ReadEnds { source: x.as_fd(), copy: y.as_fd() };
                are_equal(ends, SinkEnd::Own, hash, &mut [0; 4096], || Ok(())).unwrap()
            };
            let begins = |x: &std::fs::File, y: &std::fs::File| {
                let ends = ReadEnds { source: x.as_fd(), copy: y.as_fd() };
                are_equal(ends, SinkEnd::OfSource, hash, &mut [0; 4096], || Ok(())).unwrap()
            };
            assert!(begins(&short, &a) && !begins(&a, &short) && !begins(&a, &c));
            assert!(equal(&a, &b) && !equal(&a, &c) && !equal(&a, &short));
        }
    }
}

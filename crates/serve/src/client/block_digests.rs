//! Block digests of a file that is assembled from blocks of an older file and from received ranges.

use std::os::fd::BorrowedFd;

use thalweg_core::{Side, mechanisms::LAST_RESORT};
use thalweg_sys::io;
use thalweg_tree::hashing::Digest;

use super::{FetchError, deadline::CancelCheck};
use crate::blocks::{BlockDigest, BlockRequest};

/// The known digests of the blocks of a file. [`Self::check`] computes the others from the complete file.
#[derive(Debug)]
pub struct BlockDigests {
    request: BlockRequest,
    /// Size of the file in bytes.
    len: u64,
    digests: Vec<Option<BlockDigest>>,
}

impl BlockDigests {
    /// Creates the state for a file of `len` bytes, without a known digest.
    pub fn new(request: BlockRequest, len: u64) -> Self {
        let count = usize::try_from(len.div_ceil(request.size)).unwrap_or(0);
        Self { request, len, digests: vec![None; count] }
    }

    /// Records the digest of the block at this offset.
    pub fn add(&mut self, at: u64, digest: BlockDigest) {
        let number = usize::try_from(at / self.request.size).unwrap_or(usize::MAX);
        if let Some(known) = self.digests.get_mut(number) {
            *known = Some(digest);
        }
    }

    /// Forgets the digests of all blocks outside of these ranges, because such blocks may be overwritten. The ranges
    /// must be sorted, and begin and end at the limits of blocks.
    pub fn keep_only(&mut self, ranges: &[(u64, u64)]) {
        let mut ranges = ranges.iter().peekable();
        let offsets = (0_u64..).map(|number| number * self.request.size);
        for (known, at) in self.digests.iter_mut().zip(offsets) {
            while ranges.next_if(|(_, to)| *to <= at).is_some() {}
            if ranges.peek().is_none_or(|(from, _)| *from > at) {
                *known = None;
            }
        }
    }

    /// Hashes the digests of all blocks, and compares the result with `root`. Reads each block without a known digest
    /// from the complete file.
    pub fn check(
        &mut self,
        file: BorrowedFd<'_>,
        root: &BlockDigest,
        check_cancelled: &CancelCheck<'_>,
    ) -> Result<(), FetchError> {
        let mut block = Vec::new();
        let mut all = blake3::Hasher::new();
        for (known, at) in self.digests.iter().zip((0..).step_by(self.step())) {
            let digest = if let Some(digest) = known {
                *digest
            } else {
                check_cancelled()?;
                let len = self.request.size.min(self.len - at);
                block.resize(usize::try_from(len).unwrap_or(0), 0);
                let unread = |errno| {
                    let info = LAST_RESORT.info();
                    FetchError::Moved(info.error("pread", Side::Sink, errno, at))
                };
                let got = io::pread_full(file, &mut block, at).map_err(unread)?;
                self.request.digest(&block[..got])
            };
            all.update(&digest);
        }
        let got = *all.finalize().as_bytes();
        if got == *root {
            return Ok(());
        }
        let words =
            |digest| Digest::of(digest).map_or_else(String::new, |digest| digest.to_string());
        let (got, want) = (words(&got), words(root));
        Err(FetchError::Differs { hash: "blake3", got, want, by: "the server" })
    }

    fn step(&self) -> usize {
        usize::try_from(self.request.size).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Write, os::fd::AsFd};

    const SIZE: u64 = 1024;

    fn digests(len: u64) -> BlockDigests {
        let key = "0123456789abcdef0123456789abcdef";
        BlockDigests::new(BlockRequest::parse(&format!("blocks={SIZE}-{key}")).unwrap(), len)
    }

    fn root(bytes: &[u8]) -> BlockDigest {
        let request = digests(0).request;
        let digests: Vec<u8> =
            bytes.chunks(SIZE as usize).flat_map(|block| request.digest(block)).collect();
        *blake3::hash(&digests).as_bytes()
    }

    #[test]
    fn a_wrong_byte_is_found_in_any_block_of_unknown_digest() {
        let right: Vec<u8> = (0..5000_u32).map(|n| (n % 251) as u8).collect();
        for wrong in [None, Some(0_usize), Some(2047), Some(2048), Some(4999)] {
            let mut bytes = right.clone();
            if let Some(at) = wrong {
                bytes[at] ^= 1;
            }
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&bytes).unwrap();
            let mut all = digests(5000);
            // The second block has a known digest, so the check does not read it.
            all.add(SIZE, all.request.digest(&right[1024..2048]));
            let mut check = || all.check(file.as_fd(), &root(&right), &|| Ok(()));
            let is_in_second = wrong.is_some_and(|at| (1024..2048).contains(&at));
            assert_eq!(check().is_ok(), wrong.is_none() || is_in_second, "{wrong:?}");
            all.keep_only(&[]);
            let checked = all.check(file.as_fd(), &root(&right), &|| Ok(()));
            assert_eq!(checked.is_ok(), wrong.is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn only_blocks_inside_of_the_ranges_stay_known() {
        let mut all = digests(5000);
        (0..5).for_each(|number| all.add(number * SIZE, [1; 32]));
        all.keep_only(&[(SIZE, 3 * SIZE), (4 * SIZE, 5000)]);
        let known: Vec<bool> = all.digests.iter().map(Option::is_some).collect();
        assert_eq!(known, [false, true, true, false, true]);
        // An offset beyond the end is ignored.
        all.add(1 << 40, [1; 32]);
        assert_eq!(all.digests.len(), 5);
    }
}

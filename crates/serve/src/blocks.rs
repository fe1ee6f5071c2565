//! Sums (checksums) of the blocks of a file. A client compares them with the blocks of an older local file, and
//! requests only the blocks that it lacks.
//!
//! `docs/reference/formats.md` describes the request `?blocks=` and its answer.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
};

pub use thalweg_kernels::RollingSum;

/// The `Content-Type` of block sums.
pub const MEDIA_TYPE: &str = "application/vnd.thalweg.blocks";
/// Bytes of one sum in the answer: a rolling sum of 4 bytes, and the first 8 bytes of a digest.
pub const SUM_BYTES: usize = 12;
/// Bytes of a digest.
pub const DIGEST_BYTES: usize = 32;
/// Size in bytes of the smallest file for which a client requests sums. It fetches smaller files whole.
pub const LEAST_DELTA: u64 = 64 << 10;
const SMALLEST: u64 = 1 << 10;
const LARGEST: u64 = 64 << 20;
/// Maximum number of blocks of a file.
pub const MOST_BLOCKS: u64 = 1 << 20;
const KEY_DIGITS: usize = 32;

/// The keyed BLAKE3 digest of a block.
pub type BlockDigest = [u8; DIGEST_BYTES];

/// A request for the sums of the blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRequest {
    /// Size of a block in bytes.
    pub size: u64,
    /// Key of the digests. The client chooses it for each request, so that an attacker cannot prepare blocks with
    /// equal digests.
    key: u128,
}

impl BlockRequest {
    /// Chooses the block size for a file of `len` bytes, and a random key. The block size is near the square root of
    /// the file size. This balances the size of the list of sums against the bytes that are fetched for each changed
    /// block.
    pub fn of_file(len: u64) -> Self {
        let root = 1_u64 << (len.max(1).ilog2() / 2);
        let least = len.div_ceil(MOST_BLOCKS).checked_next_power_of_two().unwrap_or(LARGEST);
        let random = || u128::from(RandomState::new().build_hasher().finish());
        Self { size: root.max(least).max(SMALLEST), key: random() << 64 | random() }
    }

    /// Parses the query `blocks=SIZE-KEY`: a power of two, and 32 hexadecimal digits.
    pub fn parse(query: &str) -> Option<Self> {
        let (size, key) = query.strip_prefix("blocks=")?.split_once('-')?;
        let is_size = size.bytes().all(|byte| byte.is_ascii_digit());
        let is_key = key.len() == KEY_DIGITS && key.bytes().all(|byte| byte.is_ascii_hexdigit());
        let size = size.parse().ok().filter(|_| is_size && is_key)?;
        Some(Self { size, key: u128::from_str_radix(key, 16).ok()? })
    }

    /// Returns the query.
    pub fn query(&self) -> String {
        format!("blocks={}-{:032x}", self.size, self.key)
    }

    /// Returns the number of blocks of a file of `len` bytes. `None` if the block size is invalid, or too small for the
    /// file.
    pub fn count(&self, len: u64) -> Option<u64> {
        let is_size = self.size.is_power_of_two() && (SMALLEST..=LARGEST).contains(&self.size);
        Some(len.div_ceil(self.size.max(1))).filter(|count| is_size && *count <= MOST_BLOCKS)
    }

    /// Returns the hash function for one block.
    pub fn hasher(&self) -> blake3::Hasher {
        let mut key = [0; blake3::KEY_LEN];
        key[..16].copy_from_slice(&self.key.to_le_bytes());
        blake3::Hasher::new_keyed(&key)
    }

    /// Returns the digest of one block.
    pub fn digest(&self, block: &[u8]) -> BlockDigest {
        *self.hasher().update(block).finalize().as_bytes()
    }
}

/// Returns the first 8 bytes of a digest, which the sum of a block contains.
pub fn short(digest: &BlockDigest) -> [u8; 8] {
    digest.first_chunk().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_back_and_fits_its_file() {
        for len in [1, 65_536, 64 << 20, 1 << 30, 1 << 44, (1 << 46) - 3] {
            let request = BlockRequest::of_file(len);
            assert_eq!(BlockRequest::parse(&request.query()), Some(request));
            assert_eq!(request.count(len), Some(len.div_ceil(request.size)), "{len}");
        }
        assert_eq!(BlockRequest::of_file(64 << 20).size, 8192);
        let key = "0123456789abcdef0123456789abcdef";
        let signs = [format!("+8192-{key}"), format!("-8-{key}"), format!("8192-+{}", &key[1..])];
        let short = ["", "8192", "8192-", "8192-0123456789abcdef"].map(str::to_owned);
        for wrong in short.iter().chain(&signs) {
            assert_eq!(BlockRequest::parse(&format!("blocks={wrong}")), None, "{wrong}");
        }
        for wrong in [0, 1, 512, 3000, 128 << 20] {
            let request = BlockRequest::parse(&format!("blocks={wrong}-{key}")).unwrap();
            assert_eq!(request.count(1 << 20), None, "{wrong}");
        }
        let small = BlockRequest::parse(&format!("blocks=1024-{key}")).unwrap();
        assert_eq!((small.count(1 << 30), small.count((1 << 30) + 1)), (Some(1 << 20), None));
    }

    #[test]
    fn digests_depend_on_the_key() {
        let [a, b] = [1, 2].map(|key| BlockRequest { size: 1024, key });
        assert_ne!(a.digest(b"x"), b.digest(b"x"));
        assert_eq!(a.digest(b"x"), a.digest(b"x"));
    }
}

//! The hashes used to compare files.

use blake3::hazmat::{ChainingValue, HasherExt, Mode, left_subtree_len};
use sha2::Digest as _;
use std::{fmt, os::fd::BorrowedFd};
use thalweg_core::Cancelled;
use thalweg_sys::{Errno, io};

use crate::Hash;

/// A hash value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    bytes: [u8; 32],
    len: usize,
}

impl Digest {
    /// Creates a hash value from these bytes; `None` if no hash has this length.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let mut wide = [0; 32];
        wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
        [16, 32].contains(&bytes.len()).then_some(Self { bytes: wide, len: bytes.len() })
    }

    /// Returns the bytes in the order in which they are printed.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Formats the hash as hexadecimal digits.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// An incremental hash function.
pub(crate) enum Hasher {
    Sha256(Box<sha2::Sha256>),
    Blake3(Box<blake3::Hasher>),
    Xxh3(Box<xxhash_rust::xxh3::Xxh3>),
}

impl Hasher {
    pub fn new(hash: Hash) -> Self {
        match hash {
            Hash::Sha256 => Self::Sha256(Box::default()),
            Hash::Blake3 => Self::Blake3(Box::default()),
            Hash::Xxh3 => Self::Xxh3(Box::default()),
        }
    }

    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Blake3(hasher) => {
                hasher.update(bytes);
            }
            Self::Xxh3(hasher) => hasher.update(bytes),
        }
    }

    pub fn finish(self) -> Digest {
        let (mut bytes, mut len) = ([0; 32], 32);
        match self {
            Self::Sha256(hasher) => bytes.copy_from_slice(&hasher.finalize()),
            Self::Blake3(hasher) => bytes = *hasher.finalize().as_bytes(),
            Self::Xxh3(hasher) => {
                len = 16;
                bytes[..len].copy_from_slice(&hasher.digest128().to_be_bytes());
            }
        }
        Digest { bytes, len }
    }
}

/// Returns length and hash of a file, or of its first `most` bytes. Calls `go_on` between reads.
pub fn hash_file<E: From<Cancelled>>(
    fd: BorrowedFd<'_>,
    hash: Hash,
    buffer: &mut [u8],
    most: u64,
    go_on: &impl Fn() -> Result<(), Cancelled>,
    failed: impl Fn(Errno) -> E,
) -> Result<(u64, Digest), E> {
    let mut state = Hasher::new(hash);
    let mut at = 0;
    loop {
        let ask = buffer.len().min(usize::try_from(most - at).unwrap_or(usize::MAX));
        match io::pread(fd, &mut buffer[..ask], at) {
            Ok(0) => return Ok((at, state.finish())),
            Ok(got) => {
                state.update(buffer.get(..got).unwrap_or_default());
                at += got as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(failed(errno)),
        }
        go_on()?;
    }
}

/// The hash of a part of a file, to be combined with those of the other parts. Only BLAKE3 supports this.
pub(crate) struct PartialHash(ChainingValue);

impl PartialHash {
    /// Hashes the part that starts at `offset`. `read` must feed its bytes to the hasher.
    pub fn of<E>(
        offset: u64,
        read: impl FnOnce(&mut blake3::Hasher) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut hasher = blake3::Hasher::new();
        hasher.set_input_offset(offset);
        read(&mut hasher)?;
        Ok(Self(hasher.finalize_non_root()))
    }

    /// Combines the hashes of all parts of `len` bytes. Each part has `size` bytes, except for a shorter last one.
    /// `size` is a power of two of at least 1024, and there are at least two parts.
    pub fn join(parts: &[Self], size: u64, len: u64) -> Digest {
        let (left, right) = halves(parts, size, len);
        let hash = blake3::hazmat::merge_subtrees_root(&left, &right, Mode::Hash);
        Digest { bytes: *hash.as_bytes(), len: 32 }
    }
}

fn halves(parts: &[PartialHash], size: u64, len: u64) -> (ChainingValue, ChainingValue) {
    let left = left_subtree_len(len);
    let (ours, theirs) = parts.split_at((left / size) as usize);
    (tree(ours, size, left), tree(theirs, size, len - left))
}

fn tree(parts: &[PartialHash], size: u64, len: u64) -> ChainingValue {
    if let [PartialHash(only)] = parts {
        return *only;
    }
    let (left, right) = halves(parts, size, len);
    blake3::hazmat::merge_subtrees_non_root(&left, &right, Mode::Hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_that_other_tools_print() {
        let hex = |hash: Hash| {
            let mut hasher = Hasher::new(hash);
            hasher.update(b"ab");
            hasher.update(b"c");
            let hex = |byte: &u8| format!("{byte:02x}");
            hasher.finish().bytes().iter().map(hex).collect::<String>()
        };
        // printf abc | sha256sum, b3sum, xxhsum -H2
        let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let blake3 = "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85";
        assert_eq!(hex(Hash::Sha256), sha256);
        assert_eq!(hex(Hash::Blake3), blake3);
        assert_eq!(hex(Hash::Xxh3), "06b05ab6733a618578af5f94892f3950");
    }

    #[test]
    fn parts_joined_are_the_hash_of_the_whole() {
        let bytes: Vec<u8> = (0..9000_u32).map(|n| (n % 251) as u8).collect();
        for len in [1025, 2048, 2049, 4096, 5000, 8192, 9000] {
            let parts: Vec<PartialHash> = bytes[..len]
                .chunks(1024)
                .zip((0..).step_by(1024))
                .map(|(chunk, at)| {
                    let part = PartialHash::of(at, |hasher| {
                        hasher.update(chunk);
                        Ok::<_, ()>(())
                    });
                    part.unwrap()
                })
                .collect();
            let whole = *blake3::hash(&bytes[..len]).as_bytes();
            assert_eq!(PartialHash::join(&parts, 1024, len as u64).bytes(), whole, "{len}");
        }
    }
}

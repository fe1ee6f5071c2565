//! The hash functions of manifests, with the names used in options.

use clap::ValueEnum;
use thalweg_tree::Hash;

/// The hashes of manifests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum HashName {
    /// SHA-256, for sha256sum -c
    Sha256,
    /// BLAKE3, for b3sum -c
    #[default]
    Blake3,
    /// XXH3 of 128 bits, for xxhsum -c: not cryptographic
    #[value(alias = "xxh128")]
    Xxh3,
}

impl From<HashName> for Hash {
    fn from(name: HashName) -> Self {
        match name {
            HashName::Sha256 => Self::Sha256,
            HashName::Blake3 => Self::Blake3,
            HashName::Xxh3 => Self::Xxh3,
        }
    }
}

//! The hash functions of manifests, with the names used in options.

use clap::ValueEnum;
use thalweg_tree::Hash;

/// The hashes of manifests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum HashName {
    /// SHA-256, as sha256sum
    Sha256,
    /// BLAKE3, as b3sum
    #[default]
    Blake3,
    /// XXH3 with 128 bits, as xxhsum -H2; not cryptographic
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

//! The tables: one row per loop. All code that lists, runs, measures or tests kernels uses them.

use crate::crc32c;
use crate::row::{Checksum, Fill, Hash, Kernel};
use crate::rows::{inline, libc, simple};
use crate::tuned;
use crate::xxh3;

/// All copy kernels of this architecture.
pub static KERNELS: &[Kernel] = &[
    simple::COPY,
    libc::COPY,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    crate::rows::x86::rep::COPY,
    #[cfg(target_arch = "x86_64")]
    crate::rows::x86::wide::SSE2,
    #[cfg(target_arch = "x86_64")]
    crate::rows::x86::four::SSE2,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    crate::rows::x86::four::AVX2,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    crate::rows::x86::branchless::SSE2,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    crate::rows::x86::branchless::AVX2,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    crate::rows::x86::quads::AVX2,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    crate::rows::x86::wide::AVX2,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    crate::rows::x86::wide::AVX512,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    crate::rows::x86::mask::MASK128,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    crate::rows::x86::mask::MASK256,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    crate::rows::x86::mask::MASK512,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    crate::rows::x86::stream::COPY,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    crate::rows::x86::stream_nta::COPY,
    #[cfg(target_arch = "aarch64")]
    crate::rows::neon::COPY,
    inline::COPY,
    tuned::COPY,
];

/// All fills of this architecture.
pub static FILLS: &[Fill] = &[
    simple::FILL,
    libc::FILL,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    crate::rows::x86::rep::FILL,
    #[cfg(target_arch = "x86_64")]
    crate::rows::x86::wide::SSE2_FILL,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    crate::rows::x86::wide::AVX2_FILL,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    crate::rows::x86::wide::AVX512_FILL,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    crate::rows::x86::stream::FILL,
    #[cfg(target_arch = "aarch64")]
    crate::rows::neon::FILL,
    tuned::FILL,
];

/// All checksumming copies of this architecture, widest first: [`Checksum::first`] returns the first one that is available.
pub static CHECKSUMS: &[Checksum] = &[
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    crc32c::vpclmul::ROW,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    crc32c::sse42::ROW,
    crc32c::software::ROW,
];

/// All hashing copies of this architecture, widest first: [`Hash::first`] returns the first one that is available.
pub static HASHES: &[Hash] = &[
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    xxh3::x86::AVX512,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    xxh3::x86::AVX2,
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    xxh3::neon::ROW,
    xxh3::portable::ROW,
];

/// Returns the copy kernel with this name.
pub fn by_name(name: &str) -> Option<&'static Kernel> {
    KERNELS.iter().find(|kernel| kernel.name == name)
}

impl Checksum {
    /// Returns the first row that this machine can run. The last one runs everywhere.
    pub fn first() -> &'static Checksum {
        let fitting = CHECKSUMS.iter().find(|row| (row.is_available)());
        fitting.expect("the software row is always available")
    }
}

impl Hash {
    /// Returns the first row that this machine can run. The last one runs everywhere.
    pub fn first() -> &'static Hash {
        let fitting = HASHES.iter().find(|row| (row.is_available)());
        fitting.expect("the portable row is always available")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_summaries_are_one_line() {
        let lists: [Vec<(&str, &str)>; 4] = [
            KERNELS.iter().map(|k| (k.name, k.summary)).collect(),
            FILLS.iter().map(|k| (k.name, k.summary)).collect(),
            CHECKSUMS.iter().map(|k| (k.name, k.summary)).collect(),
            HASHES.iter().map(|k| (k.name, k.summary)).collect(),
        ];
        for rows in lists {
            for (n, (name, summary)) in rows.iter().enumerate() {
                assert!(rows[..n].iter().all(|row| row.0 != *name), "{name} is there twice");
                assert!(!summary.is_empty() && !summary.ends_with('.') && !summary.contains('\n'));
            }
        }
    }
}

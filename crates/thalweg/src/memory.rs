//! Memory to memory: copies, fills, and copies that also compute a checksum or a hash.
//!
//! [`copy()`], [`copy_within`] and [`fill`] use the C library until a profile of this machine selects faster loops
//! ([`is_measured`](crate::is_measured)).
//!
//! ```
//! use thalweg::memory;
//!
//! let text = *b"read once, written once, summed on the way";
//! let mut copy = [0; 42];
//! let sum = memory::copy_crc32c(&mut copy, &text, 0);
//! assert_eq!((copy, sum), (text, memory::crc32c(&text, 0)));
//! ```
pub use thalweg_kernels::{copy, copy_crc32c, copy_within, copy_xxh3, crc32c, fill, xxh3};

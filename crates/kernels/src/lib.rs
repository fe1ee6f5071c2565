//! Loops that copy and fill memory, in tables. Each loop is one row in [`KERNELS`] or [`FILLS`], and copies that also sum or hash
//! are rows in [`CHECKSUMS`] and [`HASHES`].
//!
//! No kernel is the fastest everywhere, so this crate prefers none. The best kernel per size is measured elsewhere and passed in
//! as [`Bands`]. Until then the kernel `tuned` is the C library. A kernel can be called:
//!
//! - through a resolved pointer: [`Kernel::ready`] checks the CPU once and returns a [`Ready`] with safe methods; [`copy()`],
//!   [`copy_within`] and [`fill`] use the one pointer of [`tuned`];
//! - inlined: [`inline::copy`] is compiled into its caller, at the vector width that the caller selects.
//!
//! In optimised builds the loops never call `memcpy`, `memmove` or `memset`, except in the rows named `libc`. They can therefore
//! replace these functions.
#![cfg_attr(not(test), no_std)]
// A loop must be compiled into the function that enables its instruction set; otherwise the compiler splits its vectors.
#![allow(clippy::inline_always)]

mod bands;
mod c_library;
pub mod cpu;
mod crc32c;
mod entry;
mod face;
mod installed;
mod lengths;
mod ready;
mod rolling;
mod row;
mod rows;
mod table;
pub mod tuned;
mod word;
mod xxh3;

pub use face::{copy, copy_crc32c, copy_within, copy_xxh3, crc32c, fill, xxh3};
pub use ready::{Ready, ReadyChecksum, ReadyFill, ReadyHash};
pub use rolling::RollingSum;
pub use row::{Checksum, CopyFn, CopyHashFn, CopySumFn, Fill, FillFn, Hash, HashFn, Kernel, SumFn};
pub use rows::inline;
pub use rows::prefetch::{prefetch_distance, set_prefetch_distance};
pub use table::{CHECKSUMS, FILLS, HASHES, KERNELS, by_name};
pub use tuned::Bands;
pub use word::{Vector, Word};

/// Compiles the examples of README.md as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct KernelsReadme;

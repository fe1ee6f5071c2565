//! Loops that move bytes from memory to memory, as data: one row per loop in [`KERNELS`], [`FILLS`],
//! and, for copies that sum or hash on the way, [`CHECKSUMS`] and [`HASHES`].
//!
//! No row is best everywhere, so none is preferred here: which one to use for which size is measured
//! elsewhere and handed to [`Bands`]. Until then the row `tuned` is the C library. Two ways to call:
//!
//! - through a resolved pointer: [`Kernel::ready`] checks the CPU once and gives a [`Ready`] with safe
//!   methods; [`copy()`], [`copy_within`] and [`fill`] go through the one pointer of [`tuned`];
//! - inlined: [`inline::copy`] is compiled into its caller, at the vector width the caller names.
//!
//! The loops never call `memcpy`, `memmove` or `memset` themselves when optimised, except those of
//! the rows named `libc`, so they can stand in for these functions.
#![cfg_attr(not(test), no_std)]
// A loop must be compiled into the function that has its instruction set, or its vectors are split.
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
mod row;
mod rows;
mod table;
pub mod tuned;
mod word;
mod xxh3;

pub use face::{copy, copy_crc32c, copy_within, copy_xxh3, crc32c, fill, xxh3};
pub use ready::{Ready, ReadyChecksum, ReadyFill, ReadyHash};
pub use row::{Checksum, CopyFn, CopyHashFn, CopySumFn, Fill, FillFn, Hash, HashFn, Kernel, SumFn};
pub use rows::inline;
pub use rows::prefetch::{prefetch_distance, set_prefetch_distance};
pub use table::{CHECKSUMS, FILLS, HASHES, KERNELS, by_name};
pub use tuned::Bands;
pub use word::{Vector, Word};

/// The examples of README.md are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

//! Loops that move bytes from memory to memory, as data: one row per loop in [`KERNELS`], [`FILLS`]
//! and [`CHECKSUMS`].
//!
//! No row is best everywhere, so none is preferred here: which one to use for which size is measured
//! elsewhere and handed to [`Bands`]. Until then the row `tuned` is the C library. Two ways to call:
//!
//! - through a resolved pointer: [`Kernel::ready`] checks the CPU once and gives a [`Ready`] with safe
//!   methods; [`copy()`], [`copy_within`] and [`fill`] go through the one pointer of [`tuned`];
//! - inlined: [`inline::copy`] is compiled into its caller, at the vector width the caller names.
//!
//! Not here: xxh3. Its long-input loop needs a secret schedule and four tuned instruction sets to be
//! worth fusing; until somebody measures that it pays, callers hash after copying.
//!
//! The loops never call `memcpy`, `memmove` or `memset` themselves when optimised, except those of
//! the rows named `libc`, so they can stand in for these functions.
#![cfg_attr(not(test), no_std)]
// A loop must be compiled into the function that has its instruction set, or its vectors are split.
#![allow(clippy::inline_always)]

mod cpu;
mod crc32c;
mod face;
mod ready;
mod rows;
mod table;
pub mod tuned;
mod word;

pub use face::{copy, copy_crc32c, copy_within, crc32c, fill};
pub use ready::{Ready, ReadyChecksum, ReadyFill};
pub use rows::inline;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub use rows::x86::stream::{prefetch_distance, set_prefetch_distance};
pub use table::{
    CHECKSUMS, Checksum, CopyFn, CopySumFn, FILLS, Fill, FillFn, KERNELS, Kernel, SumFn, by_name,
};
pub use tuned::Bands;
pub use word::{Vector, Word};

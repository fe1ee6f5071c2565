//! CRC32C (Castagnoli) during a copy. One file per implementation; `table.rs` lists them.
//!
//! Each word is loaded once, then written and summed from the register. Memory is read once, and the sum is that of the bytes
//! written.

pub mod poly;
pub mod software;

#[cfg(all(target_arch = "x86_64", not(miri)))]
pub mod sse42;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub mod vpclmul;

//! CRC32C (Castagnoli) while copying: one file per way, `table.rs` lists them.
//!
//! A word is loaded once, written and summed from the register: memory is read once, and what was
//! summed is what was written.

pub mod poly;
pub mod software;

#[cfg(all(target_arch = "x86_64", not(miri)))]
pub mod sse42;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub mod vpclmul;

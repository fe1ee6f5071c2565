//! One file per loop; `table.rs` lists them.

pub mod inline;
pub mod libc;
pub mod prefetch;
pub mod simple;
pub mod vector;

#[cfg(target_arch = "aarch64")]
pub mod neon;
#[cfg(target_arch = "x86_64")]
pub mod x86;

//! XXH3 during a copy: 64 bits, seed 0 and the default secret, as defined by xxHash 0.8. One file per implementation; `table.rs`
//! lists them.
//!
//! Each stripe is loaded once, then written and accumulated from the registers. Two parts are read back from the sink: inputs of
//! at most 240 bytes, and the last stripe, which begins inside the previous one. The hash is therefore that of the bytes written,
//! and the source is read once.

mod long;
mod short;

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
pub mod neon;
pub mod portable;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub mod x86;

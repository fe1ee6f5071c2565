//! XXH3 while copying: its 64 bits with seed 0 and the default secret, as xxHash 0.8 defines them. One
//! file per way, `table.rs` lists them.
//!
//! A stripe is loaded once, written and accumulated from the registers. What is shorter than a few
//! stripes, and the last stripe, which begins inside the one before it, are read back from the sink:
//! so what was hashed is what was written, and the source is read once.

mod long;
mod short;

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
pub mod neon;
pub mod portable;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub mod x86;

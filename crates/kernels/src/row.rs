//! What one row of a table holds.

use core::ffi::c_int;

use crate::cpu;

/// Copies `n` bytes from the second pointer to the first, and returns the first. It is `memcpy`'s own
/// type: where the C library serves a size, what is called is the C library's function itself.
pub type CopyFn = unsafe extern "C" fn(*mut u8, *const u8, usize) -> *mut u8;
/// Writes the low byte of a number `n` times, and returns the pointer: `memset`'s own type.
pub type FillFn = unsafe extern "C" fn(*mut u8, c_int, usize) -> *mut u8;
/// Copies `n` bytes and carries their CRC32C on.
pub type CopySumFn = unsafe fn(*mut u8, *const u8, usize, u32) -> u32;
/// Carries the CRC32C of `n` bytes on.
pub type SumFn = unsafe fn(*const u8, usize, u32) -> u32;
/// Copies `n` bytes and hashes them.
pub type CopyHashFn = unsafe fn(*mut u8, *const u8, usize) -> u64;
/// Hashes `n` bytes.
pub type HashFn = unsafe fn(*const u8, usize) -> u64;

/// One way to copy memory. [`Kernel::ready`] makes it callable from safe code.
// A row made elsewhere could claim what its functions do not keep: see `Kernel::new`.
#[non_exhaustive]
#[derive(Debug)]
pub struct Kernel {
    /// As in reports, profiles and flags.
    pub name: &'static str,
    /// What it does, in a line.
    pub summary: &'static str,
    /// Whether this machine can run it.
    pub is_available: fn() -> bool,
    /// Copies between regions that do not overlap. The caller vouches for both regions, and that
    /// `is_available` said yes.
    pub copy: CopyFn,
    /// The same for regions that may overlap, where the loop can do that.
    pub move_: Option<CopyFn>,
}

/// One way to set memory to a byte.
// A row made elsewhere could claim what its functions do not keep: see `Kernel::new`.
#[non_exhaustive]
#[derive(Debug)]
pub struct Fill {
    /// As in reports, profiles and flags.
    pub name: &'static str,
    /// What it does, in a line.
    pub summary: &'static str,
    /// Whether this machine can run it.
    pub is_available: fn() -> bool,
    /// The caller vouches for the region, and that `is_available` said yes.
    pub fill: FillFn,
}

/// One way to copy memory and take its CRC32C (Castagnoli) in the same pass.
///
/// Each byte is loaded once: what is summed is what is written, even if the source is changed by
/// another process meanwhile.
// A row made elsewhere could claim what its functions do not keep: see `Kernel::new`.
#[non_exhaustive]
#[derive(Debug)]
pub struct Checksum {
    /// As in reports, profiles and flags.
    pub name: &'static str,
    /// What it does, in a line.
    pub summary: &'static str,
    /// Whether this machine can run it.
    pub is_available: fn() -> bool,
    /// Copies between regions that do not overlap and returns the sum carried on from the last
    /// argument; 0 starts. The caller vouches for the regions, and that `is_available` said yes.
    pub copy: CopySumFn,
    /// The same sum without copying.
    pub sum: SumFn,
}

/// One way to copy memory and take its XXH3 in the same pass: 64 bits, seed 0, default secret.
///
/// The source is read once: what is hashed is what the sink holds, even if the source is changed by
/// another process meanwhile. A hash cannot be carried on: it is of all bytes or none.
// A row made elsewhere could claim what its functions do not keep: see `Kernel::new`.
#[non_exhaustive]
#[derive(Debug)]
pub struct Hash {
    /// As in reports, profiles and flags.
    pub name: &'static str,
    /// What it does, in a line.
    pub summary: &'static str,
    /// Whether this machine can run it.
    pub is_available: fn() -> bool,
    /// Copies between regions that do not overlap and returns the hash; ends of the sink are read
    /// back. The caller vouches for the regions, and that `is_available` said yes.
    pub copy: CopyHashFn,
    /// The same hash without copying.
    pub sum: HashFn,
}

impl Kernel {
    /// A row from outside the table.
    ///
    /// # Safety
    /// Where `is_available` says yes, `copy` copies and `move_` moves exactly `n` bytes, touches
    /// nothing else and returns the sink.
    pub const unsafe fn new(
        name: &'static str,
        is_available: fn() -> bool,
        copy: CopyFn,
        move_: Option<CopyFn>,
    ) -> Kernel {
        let summary = "from outside the table";
        Kernel { name, summary, is_available, copy, move_ }
    }
}

/// The `is_available` of rows without conditions.
pub const ALWAYS: fn() -> bool = cpu::always;

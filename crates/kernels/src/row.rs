//! The row types of the tables.

use core::ffi::c_int;

use crate::cpu;

/// Copies `n` bytes from the second pointer to the first, and returns the first. This is the type of `memcpy`, so that the C
/// library's function can serve sizes without a wrapper.
pub type CopyFn = unsafe extern "C" fn(*mut u8, *const u8, usize) -> *mut u8;
/// Writes the low byte of a number `n` times, and returns the pointer. This is the type of `memset`.
pub type FillFn = unsafe extern "C" fn(*mut u8, c_int, usize) -> *mut u8;
/// Copies `n` bytes and returns their CRC32C, continued from the last argument.
pub type CopySumFn = unsafe fn(*mut u8, *const u8, usize, u32) -> u32;
/// Returns the CRC32C of `n` bytes, continued from the last argument.
pub type SumFn = unsafe fn(*const u8, usize, u32) -> u32;
/// Copies `n` bytes and returns their hash.
pub type CopyHashFn = unsafe fn(*mut u8, *const u8, usize) -> u64;
/// Returns the hash of `n` bytes.
pub type HashFn = unsafe fn(*const u8, usize) -> u64;

/// A copy kernel. [`Kernel::ready`] makes it callable from safe code.
///
/// Safe code gets a row only by reference, because it could give a row of its own the function of another row:
///
/// ```compile_fail
/// let mut row = thalweg_kernels::tuned::COPY;
/// row.copy = thalweg_kernels::by_name("libc").unwrap().copy;
/// ```
/// ```compile_fail
/// let row = *thalweg_kernels::by_name("libc").unwrap();
/// ```
// Non-exhaustive: a row created elsewhere could break the guarantees of its functions; see `Kernel::new`.
#[non_exhaustive]
#[derive(Debug)]
pub struct Kernel {
    /// Name in reports, profiles and flags.
    pub name: &'static str,
    /// One-line description.
    pub summary: &'static str,
    /// Returns `true` if this machine can run the kernel.
    pub is_available: fn() -> bool,
    /// Copies between regions that do not overlap. The caller guarantees that both regions are valid and that `is_available`
    /// returned `true`.
    pub copy: CopyFn,
    /// Copies between regions that may overlap. `None` if the kernel does not support that.
    pub move_: Option<CopyFn>,
}

/// A fill: sets memory to a byte.
// Non-exhaustive: a row created elsewhere could break the guarantees of its functions; see `Kernel::new`.
#[non_exhaustive]
#[derive(Debug)]
pub struct Fill {
    /// Name in reports, profiles and flags.
    pub name: &'static str,
    /// One-line description.
    pub summary: &'static str,
    /// Returns `true` if this machine can run the fill.
    pub is_available: fn() -> bool,
    /// Fills a region. The caller guarantees that the region is valid and that `is_available` returned `true`.
    pub fill: FillFn,
}

/// A copy that computes the CRC32C (Castagnoli) in the same pass.
///
/// Each byte is loaded once. The sum is therefore that of the bytes written, even if another process changes the source during
/// the copy.
// Non-exhaustive: a row created elsewhere could break the guarantees of its functions; see `Kernel::new`.
#[non_exhaustive]
#[derive(Debug)]
pub struct Checksum {
    /// Name in reports, profiles and flags.
    pub name: &'static str,
    /// One-line description.
    pub summary: &'static str,
    /// Returns `true` if this machine can run it.
    pub is_available: fn() -> bool,
    /// Copies between regions that do not overlap and returns the sum, continued from the last argument (0 at the start). The
    /// caller guarantees that the regions are valid and that `is_available` returned `true`.
    pub copy: CopySumFn,
    /// Computes the sum without copying.
    pub sum: SumFn,
}

/// A copy that computes the XXH3 (64 bits, seed 0, default secret) in the same pass.
///
/// The source is read once. The hash is therefore that of the bytes in the sink, even if another process changes the source
/// during the copy. A hash cannot be continued: it always covers all bytes.
// Non-exhaustive: a row created elsewhere could break the guarantees of its functions; see `Kernel::new`.
#[non_exhaustive]
#[derive(Debug)]
pub struct Hash {
    /// Name in reports, profiles and flags.
    pub name: &'static str,
    /// One-line description.
    pub summary: &'static str,
    /// Returns `true` if this machine can run it.
    pub is_available: fn() -> bool,
    /// Copies between regions that do not overlap and returns the hash. Parts of the sink are read back. The caller guarantees
    /// that the regions are valid and that `is_available` returned `true`.
    pub copy: CopyHashFn,
    /// Computes the hash without copying.
    pub sum: HashFn,
}

impl Kernel {
    /// Creates a row outside the table.
    ///
    /// # Safety
    /// If `is_available` returns `true`, `copy` copies and `move_` moves exactly `n` bytes, accesses no other memory and returns
    /// the sink. This also holds for functions that are assigned to the fields of the row later.
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

/// The `is_available` of rows without requirements.
pub const ALWAYS: fn() -> bool = cpu::always;

//! The packet kernel. It is inlined into its caller, which saves a call and lets the compiler fold a constant size.
//!
//! In 2017, a function pointer per copy cost DPDK's vhost 13-20 % of its packet rate. The caller selects the width: it names the
//! vector type that its own function is compiled for.
//!
//! ```
//! #[cfg(target_arch = "x86_64")]
//! #[target_feature(enable = "avx2")]
//! unsafe fn enqueue(sink: *mut u8, packet: *const u8, len: usize) {
//!     use core::arch::x86_64::__m256i;
//! // SAFETY: the caller of enqueue guarantees that both buffers are valid.
//!     unsafe { thalweg_kernels::inline::copy::<__m256i>(sink, packet, len) };
//! }
//! ```
//!
//! A wider type is correct but slow, because the compiler splits it. The kernel uses no masks, because callers read the header of
//! a packet right after the copy, and a load directly after a masked store must wait. The kernel does not check for overlap.

use crate::row::{ALWAYS, Kernel};
use crate::word::{Vector, ends, load, opaque, store};

/// The widest vector this crate was compiled for.
#[cfg(all(target_arch = "x86_64", target_feature = "avx512f"))]
pub type Widest = core::arch::x86_64::__m512i;
/// The widest vector this crate was compiled for.
#[cfg(all(target_arch = "x86_64", target_feature = "avx2", not(target_feature = "avx512f")))]
pub type Widest = core::arch::x86_64::__m256i;
/// The widest vector this crate was compiled for.
#[cfg(all(target_arch = "x86_64", not(target_feature = "avx2")))]
pub type Widest = core::arch::x86_64::__m128i;
/// The widest vector this crate was compiled for.
#[cfg(target_arch = "aarch64")]
pub type Widest = core::arch::aarch64::uint8x16_t;
/// The widest vector this crate was compiled for.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub type Widest = u128;

pub(crate) const COPY: Kernel = Kernel {
    name: "vector-inline",
    summary: "the inline kernel for packets, called as a function; vectors as wide as the build allows",
    is_available: ALWAYS,
    copy: called,
    move_: None,
};

/// Copies `n` bytes between regions that do not overlap. Fastest for whole vectors and up to a few thousand bytes.
///
/// # Safety
/// `src` is readable and `dst` writable for `n` bytes, and they do not overlap.
#[inline(always)]
pub unsafe fn copy<V: Vector>(dst: *mut u8, src: *const u8, n: usize) {
    if n < size_of::<V>() {
        // SAFETY: guaranteed by the caller, and `n` is less than a vector.
        return unsafe { V::copy_below(dst, src, n) };
    }
    if n <= 2 * size_of::<V>() {
        // SAFETY: guaranteed by the caller, and `n` is one to two vectors.
        return unsafe { ends::<V, 1>(dst, src, n) };
    }
    if n <= 4 * size_of::<V>() {
        // SAFETY: guaranteed by the caller, and `n` is two to four vectors.
        return unsafe { ends::<V, 2>(dst, src, n) };
    }
    // SAFETY: guaranteed by the caller, and `n` is more than four vectors, which is at least a cache line.
    unsafe { by_lines::<V>(dst, src, n) }
}

/// Bytes copied per step of the loop: the cache line size.
const LINE: usize = 64;

/// # Safety
/// The contract of [`copy`], and `n` is more than four vectors.
#[inline(always)]
unsafe fn by_lines<V: Vector>(dst: *mut u8, src: *const u8, n: usize) {
    // SAFETY: the first of more than four vectors.
    let head: [V; 1] = unsafe { load(src, 0) };
    // SAFETY: as above, on the other side.
    unsafe { store(dst, 0, head) };
    // Aligns the sink rather than the source: crossing the end of a cache line costs a store two cycles, and a load less.
    let mut at = size_of::<V>() - dst.addr() % size_of::<V>();
    let last = n - LINE;
    while at < last {
        // SAFETY: `at + LINE < n`.
        unsafe { line::<V>(dst, src, at) };
        at += LINE;
        opaque();
    }
    // SAFETY: the last line of more than one.
    unsafe { line::<V>(dst, src, last) };
}

/// # Safety
/// A line from `at` on is readable in `src` and writable in `dst`, and they do not overlap.
#[inline(always)]
unsafe fn line<V: Vector>(dst: *mut u8, src: *const u8, at: usize) {
    match LINE / size_of::<V>() {
        // SAFETY: four vectors are a line.
        4 => unsafe { vectors::<V, 4>(dst, src, at) },
        // SAFETY: two vectors are a line.
        2 => unsafe { vectors::<V, 2>(dst, src, at) },
        // SAFETY: one vector is a line.
        _ => unsafe { vectors::<V, 1>(dst, src, at) },
    }
}

/// # Safety
/// `N` vectors are readable from `src + at` and writable from `dst + at`.
#[inline(always)]
unsafe fn vectors<V: Vector, const N: usize>(dst: *mut u8, src: *const u8, at: usize) {
    const { assert!(size_of::<V>() <= LINE) };
    // SAFETY: guaranteed by the caller.
    let block: [V; N] = unsafe { load(src, at) };
    // SAFETY: guaranteed by the caller.
    unsafe { store(dst, at, block) };
}

/// # Safety
/// The contract of [`Kernel::copy`].
unsafe extern "C" fn called(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    // SAFETY: guaranteed by the caller.
    unsafe { copy::<Widest>(dst, src, n) };
    dst
}

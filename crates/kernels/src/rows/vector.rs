//! The copy and fill loops that the kernels of every vector width share. Short sizes use overlapping ends. Longer ones use a
//! head, an aligned main loop of four vectors, and a tail. The tail overlaps the loop, so no branch depends on the remainder. The
//! code is generic and inlined: each row instantiates it for its own instruction set.

use crate::word::{Vector, Word, ends, fill_ends, load, opaque, store};

/// The CPU compares the addresses of loads and earlier stores only modulo this number of bytes (4K aliasing).
const ALIAS: usize = 4096;

/// Copies between regions that do not overlap.
///
/// # Safety
/// `src` is readable and `dst` writable for `n` bytes.
#[inline(always)]
pub unsafe fn copy<V: Vector>(dst: *mut u8, src: *const u8, n: usize) {
    if n < size_of::<V>() {
        // SAFETY: guaranteed by the caller, and `n` is less than a vector.
        unsafe { V::copy_below(dst, src, n) };
    } else {
        // SAFETY: guaranteed by the caller, and `n` is at least one vector.
        unsafe { copy_vectors::<V>(dst, src, n) };
    }
}

/// Copies between regions that may overlap.
///
/// # Safety
/// `src` is readable and `dst` writable for `n` bytes.
#[inline(always)]
pub unsafe fn move_<V: Vector>(dst: *mut u8, src: *const u8, n: usize) {
    if n < size_of::<V>() {
        // SAFETY: guaranteed by the caller, and `n` is less than a vector. Everything is read before anything is written.
        unsafe { V::copy_below(dst, src, n) };
    } else {
        // SAFETY: guaranteed by the caller, and `n` is at least one vector.
        unsafe { move_vectors::<V>(dst, src, n) };
    }
}

/// [`copy`] for at least one vector.
///
/// # Safety
/// `src` is readable and `dst` writable for `n >= size_of::<V>()` bytes.
#[inline(always)]
pub unsafe fn copy_vectors<V: Vector>(dst: *mut u8, src: *const u8, n: usize) {
    // SAFETY: guaranteed by the caller.
    if unsafe { upto_eight::<V>(dst, src, n) } {
        return;
    }
    // If the sink lies just above the source modulo 4 KiB, each load of an upward copy would appear to depend on a recent store (4K
    // aliasing) and wait for it.
    let ahead = dst.addr().wrapping_sub(src.addr()) % ALIAS;
    if ahead != 0 && ahead < 8 * size_of::<V>() {
        // SAFETY: more than eight vectors; regions that do not overlap may be copied in either direction.
        unsafe { downwards::<V>(dst, src, n) };
    } else {
        // SAFETY: as above.
        unsafe { upwards::<V>(dst, src, n) };
    }
}

/// [`move_`] for at least one vector.
///
/// # Safety
/// `src` is readable and `dst` writable for `n >= size_of::<V>()` bytes.
#[inline(always)]
pub unsafe fn move_vectors<V: Vector>(dst: *mut u8, src: *const u8, n: usize) {
    // SAFETY: guaranteed by the caller; everything is read before anything is written.
    if unsafe { upto_eight::<V>(dst, src, n) } {
        return;
    }
    if dst.addr().wrapping_sub(src.addr()) < n {
        // SAFETY: the sink starts inside the source, so downwards reads before it overwrites.
        unsafe { downwards::<V>(dst, src, n) };
    } else {
        // SAFETY: the sink starts before the source or after its end: upwards is correct in both cases.
        unsafe { upwards::<V>(dst, src, n) };
    }
}

/// # Safety
/// `src` is readable and `dst` writable for `n <= 8 * size_of::<V>()` bytes; they may overlap.
#[inline(always)]
pub unsafe fn short<V: Vector>(dst: *mut u8, src: *const u8, n: usize) {
    if n < size_of::<V>() {
        // SAFETY: guaranteed by the caller, and `n` is less than a vector.
        unsafe { V::copy_below(dst, src, n) };
    } else {
        // SAFETY: at least one vector, and the caller guarantees at most eight, so it copies everything.
        unsafe { upto_eight::<V>(dst, src, n) };
    }
}

/// Copies one to eight vectors. Tests the shortest sizes first, because each comparison delays all sizes tested after it. Returns
/// `false`, and does nothing, for larger sizes.
///
/// # Safety
/// `src` is readable and `dst` writable for `n >= size_of::<V>()` bytes; they may overlap.
#[inline(always)]
unsafe fn upto_eight<V: Vector>(dst: *mut u8, src: *const u8, n: usize) -> bool {
    if n <= 2 * size_of::<V>() {
        // SAFETY: one to two vectors.
        unsafe { ends::<V, 1>(dst, src, n) };
    } else if n <= 4 * size_of::<V>() {
        // SAFETY: two to four vectors.
        unsafe { ends::<V, 2>(dst, src, n) };
    } else if n <= 8 * size_of::<V>() {
        // SAFETY: four to eight vectors.
        unsafe { ends::<V, 4>(dst, src, n) };
    } else {
        return false;
    }
    true
}

/// # Safety
/// `n` is more than eight vectors; the sink does not start inside the source.
#[inline(always)]
unsafe fn upwards<V: Vector>(dst: *mut u8, src: *const u8, n: usize) {
    let last = n - 4 * size_of::<V>();
    // Head and tail are loaded first: where the regions overlap, the loop overwrites both.
    // SAFETY: the first of more than eight vectors.
    let head: [V; 1] = unsafe { load(src, 0) };
    // SAFETY: the last four of more than eight vectors.
    let tail: [V; 4] = unsafe { load(src, last) };
    let mut at = size_of::<V>() - dst.addr() % size_of::<V>();
    while at < last {
        // SAFETY: `at + 4 vectors < n`. The stores so far reached `dst + at`. If the regions overlap, that is at most `src + at`,
        // so these source bytes are unchanged.
        let block: [V; 4] = unsafe { load(src, at) };
        // SAFETY: the corresponding range of the sink.
        unsafe { store(dst, at, block) };
        at += 4 * size_of::<V>();
        opaque();
    }
    // SAFETY: the range that was read above, in the sink.
    unsafe { store(dst, last, tail) };
    // SAFETY: the range that was read above, in the sink.
    unsafe { store(dst, 0, head) };
}

/// # Safety
/// `n` is more than eight vectors; the source does not start inside the sink, unless at its start.
#[inline(always)]
unsafe fn downwards<V: Vector>(dst: *mut u8, src: *const u8, n: usize) {
    let last = n - size_of::<V>();
    // SAFETY: the first four of more than eight vectors.
    let head: [V; 4] = unsafe { load(src, 0) };
    // SAFETY: the last of more than eight vectors.
    let tail: [V; 1] = unsafe { load(src, last) };
    let mut end = n - dst.addr().wrapping_add(n) % size_of::<V>();
    while end > 4 * size_of::<V>() {
        end -= 4 * size_of::<V>();
        // SAFETY: `end + 4 vectors <= n`. The stores so far reached down to `dst + end + 4 vectors`. If the regions
        // overlap, that is at least `src + end + 4 vectors`, so these source bytes are unchanged.
        let block: [V; 4] = unsafe { load(src, end) };
        // SAFETY: the corresponding range of the sink.
        unsafe { store(dst, end, block) };
        opaque();
    }
    // SAFETY: the range that was read above, in the sink.
    unsafe { store(dst, 0, head) };
    // SAFETY: the range that was read above, in the sink.
    unsafe { store(dst, last, tail) };
}

/// Writes `n` times `byte`.
///
/// # Safety
/// `dst` is writable for `n` bytes.
#[inline(always)]
pub unsafe fn fill<V: Vector>(dst: *mut u8, byte: u8, n: usize) {
    if n < size_of::<V>() {
        // SAFETY: guaranteed by the caller, and `n` is less than a vector.
        return unsafe { V::fill_below(dst, byte, n) };
    }
    let word = V::splat(byte);
    if n <= 2 * size_of::<V>() {
        // SAFETY: one to two vectors.
        unsafe { fill_ends::<V, 1>(dst, word, n) };
    } else if n <= 4 * size_of::<V>() {
        // SAFETY: two to four vectors.
        unsafe { fill_ends::<V, 2>(dst, word, n) };
    } else {
        // SAFETY: more than four vectors.
        unsafe { fill_long(dst, word, n) };
    }
}

/// # Safety
/// `dst` is writable for `n` bytes, at least four words.
#[inline(always)]
unsafe fn fill_long<W: Word>(dst: *mut u8, word: W, n: usize) {
    let last = n - 4 * size_of::<W>();
    // SAFETY: the first word.
    unsafe { store(dst, 0, [word]) };
    let mut at = size_of::<W>() - dst.addr() % size_of::<W>();
    while at < last {
        // SAFETY: `at + 4 words < n`.
        unsafe { store(dst, at, [word; 4]) };
        at += 4 * size_of::<W>();
        opaque();
    }
    // SAFETY: the last four words.
    unsafe { store(dst, last, [word; 4]) };
}

/// Defines the row of a kernel, and a module with its functions. `$short` returns `true` if the size was short and `$short` has copied it. All
/// other sizes use [`copy_vectors`] and [`move_vectors`].
macro_rules! behind {
    ($row:ident, $name:literal, $summary:literal, $available:expr,
     $module:ident, $short:ident, $vector:ty $(, $features:literal)?) => {
        pub const $row: Kernel = Kernel {
            name: $name,
            summary: $summary,
            is_available: $available,
            copy: $module::copy,
            move_: Some($module::move_),
        };

        mod $module {
            use super::*;
            use crate::rows::vector::{copy_vectors, move_vectors};

            /// # Safety
            /// The contract of [`Kernel::copy`].
            $(#[target_feature(enable = $features)])?
            pub unsafe extern "C" fn copy(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
                // SAFETY: guaranteed by the caller.
                if !unsafe { $short(dst, src, n) } {
                    // SAFETY: guaranteed by the caller. `$short` returned `false`, so `n` is at least one vector.
                    unsafe { copy_vectors::<$vector>(dst, src, n) };
                }
                dst
            }

            /// # Safety
            /// The contract of [`Kernel::move_`].
            $(#[target_feature(enable = $features)])?
            pub unsafe extern "C" fn move_(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
                // SAFETY: guaranteed by the caller.
                if !unsafe { $short(dst, src, n) } {
                    // SAFETY: guaranteed by the caller. `$short` returned `false`, so `n` is at least one vector.
                    unsafe { move_vectors::<$vector>(dst, src, n) };
                }
                dst
            }
        }
    };
}
pub(crate) use behind;

//! The units that a loop moves at a time: integers for short sizes, vector registers for longer ones.
//!
//! A vector is moved as a value of its type, not with an intrinsic. Inlined into a function that enables the instruction set,
//! such a move is one load or store. Elsewhere the compiler splits the move, which is slower but correct. One generic loop can
//! therefore serve every width and architecture, and Miri.

use core::sync::atomic::{Ordering, compiler_fence};

/// Bytes of a fixed size that are moved at once.
///
/// # Safety
/// Every bit pattern is a value, there is no padding, and the size is a power of two.
pub unsafe trait Word: Copy {
    /// Returns the word in which every byte is `byte`.
    fn splat(byte: u8) -> Self;
}

/// A [`Word`] of at least 16 bytes that can also move regions shorter than itself.
///
/// # Safety
/// See [`Word`].
pub unsafe trait Vector: Word {
    /// Copies `n < size_of::<Self>()` bytes. The regions may overlap.
    ///
    /// # Safety
    /// `src` is readable and `dst` writable for `n` bytes.
    unsafe fn copy_below(dst: *mut u8, src: *const u8, n: usize);

    /// Writes `byte` `n < size_of::<Self>()` times.
    ///
    /// # Safety
    /// `dst` is writable for `n` bytes.
    unsafe fn fill_below(dst: *mut u8, byte: u8, n: usize);
}

/// Prevents the compiler from reordering, combining or replacing accesses across this call, and costs no instruction. Otherwise
/// the compiler would recognise a loop as memcpy and call memcpy. In a library that implements memcpy, that call would never
/// return.
#[inline(always)]
pub fn opaque() {
    compiler_fence(Ordering::SeqCst);
}

macro_rules! integers {
    ($($word:ty),*) => {$(
        // SAFETY: integers have no padding and no invalid values.
        unsafe impl Word for $word {
            #[inline(always)]
            fn splat(byte: u8) -> Self {
                Self::from_ne_bytes([byte; size_of::<Self>()])
            }
        }
    )*};
}
integers!(u8, u16, u32, u64, u128);

macro_rules! vectors {
    ($($vector:ty: $half:ty),*) => {$(
        // SAFETY: a vector register has no padding, and every bit pattern is a value.
        unsafe impl Word for $vector {
            #[inline(always)]
            fn splat(byte: u8) -> Self {
                // SAFETY: same size, and every bit pattern is a value of a vector type.
                unsafe { core::mem::transmute([byte; size_of::<Self>()]) }
            }
        }
        below!($vector: $half);
    )*};
}

macro_rules! below {
    ($vector:ty: $half:ty) => {
        // SAFETY: only methods are added.
        unsafe impl Vector for $vector {
            #[inline(always)]
            unsafe fn copy_below(dst: *mut u8, src: *const u8, n: usize) {
                if n >= size_of::<$half>() {
                    // SAFETY: `half <= n < 2 * half`; the caller guarantees that the bytes are readable and writable.
                    unsafe { ends::<$half, 1>(dst, src, n) };
                } else {
                    // SAFETY: `n < half`; the caller guarantees everything else.
                    unsafe { <$half as ShorterMove>::copy(dst, src, n) };
                }
            }

            #[inline(always)]
            unsafe fn fill_below(dst: *mut u8, byte: u8, n: usize) {
                if n >= size_of::<$half>() {
                    // SAFETY: `half <= n < 2 * half`; the caller guarantees that the bytes are writable.
                    unsafe { fill_ends::<$half, 1>(dst, <$half>::splat(byte), n) };
                } else {
                    // SAFETY: `n < half`; the caller guarantees everything else.
                    unsafe { <$half as ShorterMove>::fill(dst, byte, n) };
                }
            }
        }
    };
}

/// Moves regions that are shorter than this word, including empty ones.
trait ShorterMove {
    /// # Safety
    /// See [`Vector::copy_below`].
    unsafe fn copy(dst: *mut u8, src: *const u8, n: usize);
    /// # Safety
    /// See [`Vector::fill_below`].
    unsafe fn fill(dst: *mut u8, byte: u8, n: usize);
}

impl<V: Vector> ShorterMove for V {
    #[inline(always)]
    unsafe fn copy(dst: *mut u8, src: *const u8, n: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe { V::copy_below(dst, src, n) };
    }
    #[inline(always)]
    unsafe fn fill(dst: *mut u8, byte: u8, n: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe { V::fill_below(dst, byte, n) };
    }
}

impl ShorterMove for u64 {
    #[inline(always)]
    unsafe fn copy(dst: *mut u8, src: *const u8, n: usize) {
        if n >= 4 {
            // SAFETY: `4 <= n < 8`; the caller guarantees that the bytes are readable and writable.
            unsafe { ends::<u32, 1>(dst, src, n) };
        } else if n >= 2 {
            // SAFETY: `2 <= n < 4`, as above.
            unsafe { ends::<u16, 1>(dst, src, n) };
        } else if n != 0 {
            // SAFETY: `n` is 1: the same byte twice.
            unsafe { ends::<u8, 1>(dst, src, n) };
        }
    }

    #[inline(always)]
    unsafe fn fill(dst: *mut u8, byte: u8, n: usize) {
        if n >= 4 {
            // SAFETY: `4 <= n < 8`; the caller guarantees that the bytes are writable.
            unsafe { fill_ends::<u32, 1>(dst, u32::splat(byte), n) };
        } else if n >= 2 {
            // SAFETY: `2 <= n < 4`, as above.
            unsafe { fill_ends::<u16, 1>(dst, u16::splat(byte), n) };
        } else if n != 0 {
            // SAFETY: `n` is 1.
            unsafe { fill_ends::<u8, 1>(dst, byte, n) };
        }
    }
}

below!(u128: u64);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use core::arch::x86_64::{__m128i, __m256i, __m512i};

    use super::{ShorterMove, Vector, Word, ends, fill_ends};

    vectors!(__m128i: u64, __m256i: __m128i, __m512i: __m256i);
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use core::arch::aarch64::uint8x16_t;

    use super::{ShorterMove, Vector, Word, ends, fill_ends};

    vectors!(uint8x16_t: u64);
}

/// Reads `N <= 4` words from `src + at`.
///
/// The reads are not a loop, because the compiler would keep the array in memory, even after it has unrolled the loop.
///
/// # Safety
/// All `N` words are readable.
#[inline(always)]
pub unsafe fn load<W: Word, const N: usize>(src: *const u8, at: usize) -> [W; N] {
    const { assert!(N <= 4) };
    let from = src.wrapping_add(at).cast::<W>();
    let mut words = [W::splat(0); N];
    if N > 0 {
        // SAFETY: the caller guarantees that it is readable; any bit pattern is a W.
        words[0] = unsafe { from.read_unaligned() };
    }
    if N > 1 {
        // SAFETY: the second of `N`.
        words[1] = unsafe { from.wrapping_add(1).read_unaligned() };
    }
    if N > 2 {
        // SAFETY: the third of `N`.
        words[2] = unsafe { from.wrapping_add(2).read_unaligned() };
    }
    if N > 3 {
        // SAFETY: the fourth of `N`.
        words[3] = unsafe { from.wrapping_add(3).read_unaligned() };
    }
    words
}

/// Writes `N <= 4` words to `dst + at`.
///
/// The words are written one by one and in this order. Otherwise, in a function with wider vectors, the compiler would combine
/// two stores into one. The wide store can cross a cache line although the narrower ones do not.
///
/// # Safety
/// All `N` words are writable.
#[inline(always)]
pub unsafe fn store<W: Word, const N: usize>(dst: *mut u8, at: usize, words: [W; N]) {
    const { assert!(N <= 4) };
    let to = dst.wrapping_add(at).cast::<W>();
    if N > 0 {
        // SAFETY: the caller guarantees that it is writable.
        unsafe { to.write_unaligned(words[0]) };
    }
    if N > 1 {
        opaque();
        // SAFETY: the second of `N`.
        unsafe { to.wrapping_add(1).write_unaligned(words[1]) };
    }
    if N > 2 {
        opaque();
        // SAFETY: the third of `N`.
        unsafe { to.wrapping_add(2).write_unaligned(words[2]) };
    }
    if N > 3 {
        opaque();
        // SAFETY: the fourth of `N`.
        unsafe { to.wrapping_add(3).write_unaligned(words[3]) };
    }
}

/// Copies `n` bytes as the first and the last `N` words, which overlap in the middle: no branch depends on the exact size.
/// Everything is read before anything is written, so the regions may overlap.
///
/// # Safety
/// `src` is readable and `dst` writable for `n` bytes, at least `N` words and at most twice that.
#[inline(always)]
pub unsafe fn ends<W: Word, const N: usize>(dst: *mut u8, src: *const u8, n: usize) {
    let last = n - N * size_of::<W>();
    // SAFETY: the caller guarantees that `N` words fit into `n` bytes.
    let head: [W; N] = unsafe { load(src, 0) };
    // SAFETY: the last `N` words of the same bytes.
    let tail: [W; N] = unsafe { load(src, last) };
    // SAFETY: like the reads, for the sink.
    unsafe { store(dst, 0, head) };
    // SAFETY: as above.
    unsafe { store(dst, last, tail) };
}

/// Copies `n` bytes as four words. For half of the sizes the middle words coincide with the outer words. Sizes from one to four
/// words therefore need no branch. Everything is read before anything is written, so the regions may overlap.
///
/// # Safety
/// `src` is readable and `dst` writable for `n` bytes, at least a word and at most four.
#[inline(always)]
pub unsafe fn four<W: Word>(dst: *mut u8, src: *const u8, n: usize) {
    let word = size_of::<W>();
    // One word if `n` is more than two words, otherwise 0.
    let inner = ((n - 1) & (2 * word)) / 2;
    let last = n - word;
    // SAFETY: the first word of `n` bytes.
    let first: [W; 1] = unsafe { load(src, 0) };
    // SAFETY: a word at `inner`. If `inner` is not 0, it is one word, and `n` is more than two words.
    let second: [W; 1] = unsafe { load(src, inner) };
    // SAFETY: the word that ends `inner` bytes before the end.
    let third: [W; 1] = unsafe { load(src, last - inner) };
    // SAFETY: the last word.
    let fourth: [W; 1] = unsafe { load(src, last) };
    // SAFETY: like the reads, for the sink. This holds for the calls below as well.
    unsafe { store(dst, 0, first) };
    opaque();
    // SAFETY: as above.
    unsafe { store(dst, inner, second) };
    opaque();
    // SAFETY: as above.
    unsafe { store(dst, last - inner, third) };
    opaque();
    // SAFETY: as above.
    unsafe { store(dst, last, fourth) };
}

/// Writes `word` `N` times at the start and `N` times at the end of `n` bytes.
///
/// # Safety
/// `dst` is writable for `n` bytes, at least `N` words and at most twice that.
#[inline(always)]
pub unsafe fn fill_ends<W: Word, const N: usize>(dst: *mut u8, word: W, n: usize) {
    // SAFETY: the caller guarantees that `N` words fit into `n` bytes.
    unsafe { store(dst, 0, [word; N]) };
    // SAFETY: the last `N` words of the same bytes.
    unsafe { store(dst, n - N * size_of::<W>(), [word; N]) };
}

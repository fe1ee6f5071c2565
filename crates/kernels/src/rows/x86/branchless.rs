//! No branches below 16 bytes. A word of 8, 4, 2 or 1 bytes is copied if the length has the corresponding bit.
//! Otherwise the word is read from and written to a dummy buffer. 16 to 64 bytes are copied by four overlapping moves
//! of 16 bytes. This kernel is intended for unpredictable lengths on CPUs without masks. For repeated lengths, it is
//! slower than comparisons that halve the range of lengths.

use core::arch::asm;
use core::arch::x86_64::{__m128i, __m256i};
use core::hint::select_unpredictable;

use crate::cpu;
use crate::row::{ALWAYS, Kernel};
use crate::rows::vector::behind;
use crate::rows::x86::four::from_a_vector;
use crate::word::{Word, load, opaque, store};

/// Copies up to 64 bytes. Returns `false`, and does nothing, for larger sizes.
///
/// # Safety
/// `src` is readable and `dst` writable for `n` bytes; they may overlap.
#[inline(always)]
unsafe fn short(dst: *mut u8, src: *const u8, n: usize) -> bool {
    if n < 16 {
        // SAFETY: less than 16 bytes.
        unsafe { by_bits(dst, src, n) };
        return true;
    }
    // SAFETY: guaranteed by the caller, and `n` is at least 16.
    unsafe { from_a_vector(dst, src, n) }
}

/// # Safety
/// `src` is readable and `dst` writable for `n < 16` bytes; they may overlap.
#[inline(always)]
unsafe fn by_bits(dst: *mut u8, src: *const u8, n: usize) {
    let mut nowhere = [0_u8; 8];
    let mut nowhere = nowhere.as_mut_ptr();
    // Hides the dummy buffer from the compiler: if it knew that the buffer is never read, it would turn the selections into
    // branches.
    // SAFETY: the asm contains no instruction.
    unsafe { asm!("/* {0} */", inout(reg) nowhere, options(nostack, preserves_flags)) };
    // SAFETY: the call accesses only bytes of the region or of the dummy buffer. This holds for the calls below as well.
    let eight_bytes = unsafe { bit::<u64>(src, n, nowhere) };
    // SAFETY: as above.
    let four_bytes = unsafe { bit::<u32>(src, n, nowhere) };
    // SAFETY: as above.
    let two_bytes = unsafe { bit::<u16>(src, n, nowhere) };
    // SAFETY: as above.
    let one_byte = unsafe { bit::<u8>(src, n, nowhere) };
    // Everything is read before anything is written.
    opaque();
    // SAFETY: as above.
    unsafe { put(dst, n, eight_bytes, nowhere) };
    // SAFETY: as above.
    unsafe { put(dst, n, four_bytes, nowhere) };
    // SAFETY: as above.
    unsafe { put(dst, n, two_bytes, nowhere) };
    // SAFETY: as above.
    unsafe { put(dst, n, one_byte, nowhere) };
}

/// Returns the address of the word of this size if `n` has the bit of that size, otherwise `nowhere`. Larger words precede it.
#[inline(always)]
fn place<W>(from: *const u8, n: usize, nowhere: *const u8) -> *const u8 {
    let behind = n & !(2 * size_of::<W>() - 1);
    select_unpredictable(n & size_of::<W>() != 0, from.wrapping_add(behind), nowhere)
}

/// # Safety
/// `src` is readable for `n` bytes, and `nowhere` for a word.
#[inline(always)]
unsafe fn bit<W: Word>(src: *const u8, n: usize, nowhere: *mut u8) -> [W; 1] {
    // SAFETY: `place` returns one of the two.
    unsafe { load(place::<W>(src, n, nowhere), 0) }
}

/// # Safety
/// `dst` is writable for `n` bytes, and `nowhere` for a word.
#[inline(always)]
unsafe fn put<W: Word>(dst: *mut u8, n: usize, word: [W; 1], nowhere: *mut u8) {
    // SAFETY: `place` returns one of the two.
    unsafe { store(place::<W>(dst, n, nowhere).cast_mut(), 0, word) };
    opaque();
}

behind! {
    SSE2, "branchless",
    "up to 15 bytes without branches; 16 to 64 in four 16-byte moves; larger sizes as in sse2",
    ALWAYS, sse2, short, __m128i
}
behind! {
    AVX2, "branchless-avx2",
    "up to 15 bytes without branches; 16 to 64 in four 16-byte moves; larger sizes as in avx2",
    || cpu::has(cpu::AVX2), avx2, short, __m256i, "avx2"
}

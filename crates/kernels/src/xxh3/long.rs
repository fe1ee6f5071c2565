//! Stripes of 64 bytes into eight sums, which are scrambled after every block of sixteen stripes.
//! Generic and inlined: each row instantiates it under its own instruction set.

use super::short::{self, MOST, PRIME32, PRIME64, SECRET, avalanche, folded, secret};
use crate::rows::inline;
use crate::word::{Vector, load, opaque, store};

const STRIPE: usize = 64;
/// Each stripe of a block begins in the secret so many bytes behind the one before.
const STEP: usize = 8;
const STRIPES: usize = (SECRET.len() - STRIPE) / STEP;
const BLOCK: usize = STRIPES * STRIPE;

/// Where the sums begin.
static START: [[u8; 8]; 8] = [
    PRIME32[2].to_le_bytes(),
    PRIME64[0].to_le_bytes(),
    PRIME64[1].to_le_bytes(),
    PRIME64[2].to_le_bytes(),
    PRIME64[3].to_le_bytes(),
    PRIME32[1].to_le_bytes(),
    PRIME64[4].to_le_bytes(),
    PRIME32[0].to_le_bytes(),
];

/// A vector as 64-bit lanes, the first one in its first bytes.
pub trait Lanes: Vector {
    /// From the order of bytes in memory to that of the lanes, and back.
    #[inline(always)]
    #[must_use]
    fn ordered(self) -> Self {
        self
    }

    /// These sums, to which each lane of `data` and `secret` gives the product of its two halves, and
    /// its neighbour's `data`.
    ///
    /// # Safety
    /// The CPU has the instruction set of the row.
    #[must_use]
    unsafe fn plus(self, data: Self, secret: Self) -> Self;

    /// These sums, stirred.
    ///
    /// # Safety
    /// The CPU has the instruction set of the row.
    #[must_use]
    unsafe fn scrambled(self, secret: Self) -> Self;
}

/// Copies, if `COPY`, and hashes; `N` vectors are a stripe.
///
/// # Safety
/// `src` is readable for `n` bytes; if `COPY`, `dst` is writable and readable for as many, and they do
/// not overlap. The CPU has the instruction set of the row.
#[inline(always)]
pub unsafe fn run<L: Lanes, const N: usize, const COPY: bool>(
    dst: *mut u8,
    src: *const u8,
    n: usize,
) -> u64 {
    const { assert!(N * size_of::<L>() == STRIPE) };
    if n <= MOST {
        if COPY {
            // SAFETY: the same contract.
            unsafe { inline::copy::<L>(dst, src, n) };
        }
        // SAFETY: the same bytes, in the sink or in the source.
        return unsafe { short::hash(if COPY { dst } else { src }, n) };
    }
    // SAFETY: the sums are a stripe long.
    let mut sums = ordered::<L, N>(unsafe { load(START.as_ptr().cast(), 0) });
    let mut at = 0;
    // What is left at the end is never nothing, and its last stripe has a secret of its own.
    while at + BLOCK < n {
        // SAFETY: a whole block is left.
        sums = unsafe { stripes::<L, N, COPY>(sums, (dst, src), at, STRIPES) };
        // SAFETY: the last stripe of the secret.
        let last = ordered(unsafe { load(SECRET.as_ptr(), SECRET.len() - STRIPE) });
        // SAFETY: the instruction set is there.
        sums = unsafe { scrambled::<L, N>(sums, last) };
        at += BLOCK;
    }
    let whole = (n - 1 - at) / STRIPE;
    // SAFETY: so many whole stripes are left.
    sums = unsafe { stripes::<L, N, COPY>(sums, (dst, src), at, whole) };
    at += whole * STRIPE;
    if COPY {
        // SAFETY: what is left of both, which is a stripe or less.
        unsafe { inline::copy::<L>(dst.wrapping_add(at), src.wrapping_add(at), n - at) };
    }
    let from = if COPY { dst } else { src };
    // SAFETY: the last of many stripes, in the sink or in the source.
    let data = ordered(unsafe { load::<L, N>(from, n - STRIPE) });
    // SAFETY: a stripe that ends seven bytes before the secret does.
    let last = ordered(unsafe { load(SECRET.as_ptr(), SECRET.len() - STRIPE - 7) });
    // SAFETY: the instruction set is there.
    sums = unsafe { plus::<L, N>(sums, data, last) };
    merged(sums, n)
}

/// So many stripes from `at` on, copied if `COPY`, and accumulated.
///
/// # Safety
/// They lie inside source and sink of `run`, whose contract it is otherwise; at most a block.
#[inline(always)]
unsafe fn stripes<L: Lanes, const N: usize, const COPY: bool>(
    mut sums: [L; N],
    (dst, src): (*mut u8, *const u8),
    at: usize,
    count: usize,
) -> [L; N] {
    let mut stripe = 0;
    while stripe < count {
        let here = at + stripe * STRIPE;
        // SAFETY: inside the source, says the caller.
        let data: [L; N] = unsafe { load(src, here) };
        if COPY {
            // SAFETY: the same range of the sink.
            unsafe { store(dst, here, data) };
            opaque();
        }
        // SAFETY: `stripe < STRIPES`, after the last of which another one would fit.
        let key = ordered(unsafe { load(SECRET.as_ptr(), stripe * STEP) });
        // SAFETY: the instruction set is there.
        sums = unsafe { plus::<L, N>(sums, ordered(data), key) };
        stripe += 1;
    }
    sums
}

/// Four words at most, and not in a loop: see `word::load`.
macro_rules! each {
    ($n:expr, $words:ident, $i:ident => $word:expr) => {{
        const { assert!($n <= 4) };
        each!(@one $n, $words, $i, 0, $word);
        each!(@one $n, $words, $i, 1, $word);
        each!(@one $n, $words, $i, 2, $word);
        each!(@one $n, $words, $i, 3, $word);
        $words
    }};
    (@one $n:expr, $words:ident, $i:ident, $at:literal, $word:expr) => {
        if $n > $at {
            let $i = $at;
            $words[$i] = $word;
        }
    };
}

#[inline(always)]
fn ordered<L: Lanes, const N: usize>(mut words: [L; N]) -> [L; N] {
    each!(N, words, i => words[i].ordered())
}

/// # Safety
/// The CPU has the instruction set of the row.
#[inline(always)]
unsafe fn plus<L: Lanes, const N: usize>(mut sums: [L; N], data: [L; N], key: [L; N]) -> [L; N] {
    // SAFETY: the same contract.
    each!(N, sums, i => unsafe { sums[i].plus(data[i], key[i]) })
}

/// # Safety
/// The CPU has the instruction set of the row.
#[inline(always)]
unsafe fn scrambled<L: Lanes, const N: usize>(mut sums: [L; N], key: [L; N]) -> [L; N] {
    // SAFETY: the same contract.
    each!(N, sums, i => unsafe { sums[i].scrambled(key[i]) })
}

/// The eight sums and the length as one word.
#[inline(always)]
fn merged<L: Lanes, const N: usize>(sums: [L; N], n: usize) -> u64 {
    let mut lanes = [[0; 8]; 8];
    // SAFETY: the sums are a stripe long, and so are the lanes.
    unsafe { store(lanes.as_mut_ptr().cast(), 0, ordered(sums)) };
    let lane = |i: usize| u64::from_le_bytes(lanes[i]);
    let mut all = (n as u64).wrapping_mul(PRIME64[0]);
    let mut i = 0;
    while i < lanes.len() {
        let key = 11 + i * 8;
        let pair = folded(lane(i) ^ secret(key), lane(i + 1) ^ secret(key + 8));
        all = all.wrapping_add(pair);
        i += 2;
    }
    avalanche(all)
}

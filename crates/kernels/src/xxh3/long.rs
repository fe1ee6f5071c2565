//! Long inputs: stripes of 64 bytes are accumulated into eight sums, which are scrambled after every block of sixteen stripes.
//! The code is generic and inlined: each row instantiates it for its own instruction set.

use super::short::{self, MOST, PRIME32, PRIME64, SECRET, avalanche, folded, secret};
use crate::rows::inline;
use crate::word::{Vector, load, opaque, store};

const STRIPE: usize = 64;
/// Offset in the secret, in bytes, from one stripe of a block to the next.
const STEP: usize = 8;
const STRIPES: usize = (SECRET.len() - STRIPE) / STEP;
const BLOCK: usize = STRIPES * STRIPE;

/// Initial values of the sums.
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

/// A vector as 64-bit lanes; the first lane is in the first bytes.
pub trait HashLanes: Vector {
    /// Converts between the byte order in memory and the order of the lanes, in both directions.
    #[inline(always)]
    #[must_use]
    fn ordered(self) -> Self {
        self
    }

    /// Adds to each sum the product of the two halves of its lane of `data ^ secret`, and the neighbouring lane of `data`.
    ///
    /// # Safety
    /// The CPU has the instruction set of the row.
    #[must_use]
    unsafe fn plus(self, data: Self, secret: Self) -> Self;

    /// Scrambles the sums.
    ///
    /// # Safety
    /// The CPU has the instruction set of the row.
    #[must_use]
    unsafe fn scrambled(self, secret: Self) -> Self;
}

/// Hashes and, if `COPY`, copies. `N` vectors are a stripe.
///
/// # Safety
/// `src` is readable for `n` bytes; if `COPY`, `dst` is writable and readable for as many, and they do
/// not overlap. The CPU has the instruction set of the row.
#[inline(always)]
pub unsafe fn run<L: HashLanes, const N: usize, const COPY: bool>(
    dst: *mut u8,
    src: *const u8,
    n: usize,
) -> u64 {
    const { assert!(N * size_of::<L>() == STRIPE) };
    if n <= MOST {
        if COPY {
            // SAFETY: guaranteed by the caller.
            unsafe { inline::copy::<L>(dst, src, n) };
        }
        // SAFETY: guaranteed by the caller; if `COPY`, the sink now holds the bytes of the source.
        return unsafe { short::hash(if COPY { dst } else { src }, n) };
    }
    // SAFETY: the initial values are one stripe long.
    let mut sums = ordered::<L, N>(unsafe { load(START.as_ptr().cast(), 0) });
    let mut at = 0;
    // The remainder is never empty, and its last stripe uses a separate part of the secret.
    while at + BLOCK < n {
        // SAFETY: a whole block remains.
        sums = unsafe { stripes::<L, N, COPY>(sums, dst, src, at, STRIPES) };
        // SAFETY: the last stripe of the secret.
        let last = ordered(unsafe { load(SECRET.as_ptr(), SECRET.len() - STRIPE) });
        // SAFETY: the caller guarantees the instruction set.
        sums = unsafe { scrambled::<L, N>(sums, last) };
        at += BLOCK;
    }
    let whole = (n - 1 - at) / STRIPE;
    // SAFETY: `whole` whole stripes remain.
    sums = unsafe { stripes::<L, N, COPY>(sums, dst, src, at, whole) };
    at += whole * STRIPE;
    if COPY {
        // SAFETY: the remainder of both regions, which is at most a stripe.
        unsafe { inline::copy::<L>(dst.wrapping_add(at), src.wrapping_add(at), n - at) };
    }
    let from = if COPY { dst } else { src };
    // SAFETY: the last of many stripes, in the sink or in the source.
    let data = ordered(unsafe { load::<L, N>(from, n - STRIPE) });
    // SAFETY: a stripe that ends seven bytes before the secret does.
    let last = ordered(unsafe { load(SECRET.as_ptr(), SECRET.len() - STRIPE - 7) });
    // SAFETY: the caller guarantees the instruction set.
    sums = unsafe { plus::<L, N>(sums, data, last) };
    merged(sums, n)
}

/// Accumulates `count` stripes from `at` on, and copies them if `COPY`.
///
/// # Safety
/// The stripes lie inside source and sink of `run`, and are at most a block. The rest of the contract of `run` applies.
#[inline(always)]
unsafe fn stripes<L: HashLanes, const N: usize, const COPY: bool>(
    mut sums: [L; N],
    dst: *mut u8,
    src: *const u8,
    at: usize,
    count: usize,
) -> [L; N] {
    let mut stripe = 0;
    while stripe < count {
        let here = at + stripe * STRIPE;
        // SAFETY: the caller guarantees that it lies inside the source.
        let data: [L; N] = unsafe { load(src, here) };
        if COPY {
            // SAFETY: the corresponding range of the sink.
            unsafe { store(dst, here, data) };
            opaque();
        }
        // SAFETY: `stripe < STRIPES`, and the secret has room for one more stripe after the last one.
        let key = ordered(unsafe { load(SECRET.as_ptr(), stripe * STEP) });
        // SAFETY: the caller guarantees the instruction set.
        sums = unsafe { plus::<L, N>(sums, ordered(data), key) };
        stripe += 1;
    }
    sums
}

/// Applies an expression to at most four words, without a loop for the reason in `word::load`.
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
fn ordered<L: HashLanes, const N: usize>(mut words: [L; N]) -> [L; N] {
    each!(N, words, i => words[i].ordered())
}

/// # Safety
/// The CPU has the instruction set of the row.
#[inline(always)]
unsafe fn plus<L: HashLanes, const N: usize>(
    mut sums: [L; N],
    data: [L; N],
    key: [L; N],
) -> [L; N] {
    // SAFETY: guaranteed by the caller.
    each!(N, sums, i => unsafe { sums[i].plus(data[i], key[i]) })
}

/// # Safety
/// The CPU has the instruction set of the row.
#[inline(always)]
unsafe fn scrambled<L: HashLanes, const N: usize>(mut sums: [L; N], key: [L; N]) -> [L; N] {
    // SAFETY: guaranteed by the caller.
    each!(N, sums, i => unsafe { sums[i].scrambled(key[i]) })
}

/// Combines the eight sums and the length into the hash.
#[inline(always)]
fn merged<L: HashLanes, const N: usize>(sums: [L; N], n: usize) -> u64 {
    let mut lanes = [[0; 8]; 8];
    // SAFETY: both the sums and the lanes are one stripe long.
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

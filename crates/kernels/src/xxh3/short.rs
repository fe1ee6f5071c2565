//! Hashes inputs of up to 240 bytes, which need no state, only a few products. Also contains code that longer inputs share.

use crate::word::load;

/// Length of the longest input without stripes.
pub const MOST: usize = 240;

/// The default secret.
pub static SECRET: [u8; 192] = [
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
];

pub const PRIME32: [u64; 3] = [0x9e37_79b1, 0x85eb_ca77, 0xc2b2_ae3d];
pub const PRIME64: [u64; 5] = [
    0x9e37_79b1_85eb_ca87,
    0xc2b2_ae3d_27d4_eb4f,
    0x1656_67b1_9e37_79f9,
    0x85eb_ca77_c2b2_ae63,
    0x27d4_eb2f_1656_67c5,
];
const MIX: [u64; 2] = [0x1656_6791_9e37_79f9, 0x9fb2_1c65_1e98_df25];

/// Returns the word of the secret at `at`.
#[inline(always)]
pub fn secret(at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&SECRET[at..at + 8]);
    u64::from_le_bytes(word)
}

/// Returns the exclusive or of the two halves of the product.
#[inline(always)]
pub fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[inline(always)]
pub fn avalanche(word: u64) -> u64 {
    let word = (word ^ word >> 37).wrapping_mul(MIX[0]);
    word ^ word >> 32
}

/// The avalanche function of XXH64.
#[inline(always)]
fn avalanche_64(word: u64) -> u64 {
    let word = (word ^ word >> 33).wrapping_mul(PRIME64[1]);
    let word = (word ^ word >> 29).wrapping_mul(PRIME64[2]);
    word ^ word >> 32
}

/// # Safety
/// `src` is readable for `n <= MOST` bytes.
#[inline(always)]
pub unsafe fn hash(src: *const u8, n: usize) -> u64 {
    match n {
        0 => avalanche_64(secret(56) ^ secret(64)),
        // SAFETY: guaranteed by the caller, and `n` is in range.
        1..=3 => unsafe { upto_3(src, n) },
        // SAFETY: as above.
        4..=8 => unsafe { upto_8(src, n) },
        // SAFETY: as above.
        9..=16 => unsafe { upto_16(src, n) },
        // SAFETY: as above.
        17..=128 => unsafe { upto_128(src, n) },
        // SAFETY: as above.
        _ => unsafe { upto_240(src, n) },
    }
}

/// # Safety
/// Eight bytes at `src + at` are readable.
#[inline(always)]
unsafe fn word(src: *const u8, at: usize) -> u64 {
    // SAFETY: guaranteed by the caller.
    let [word] = unsafe { load::<u64, 1>(src, at) };
    u64::from_le(word)
}

/// # Safety
/// `src` is readable for `n` bytes, 1 to 3.
#[inline(always)]
unsafe fn upto_3(src: *const u8, n: usize) -> u64 {
    // SAFETY: the first byte.
    let [first] = unsafe { load::<u8, 1>(src, 0) };
    // SAFETY: `n / 2 < n`.
    let [middle] = unsafe { load::<u8, 1>(src, n / 2) };
    // SAFETY: the last byte.
    let [last] = unsafe { load::<u8, 1>(src, n - 1) };
    let all = u32::from_le_bytes([last, n as u8, first, middle]);
    let key = secret(0) as u32 ^ (secret(0) >> 32) as u32;
    avalanche_64(u64::from(all ^ key))
}

/// # Safety
/// `src` is readable for `n` bytes, 4 to 8.
#[inline(always)]
unsafe fn upto_8(src: *const u8, n: usize) -> u64 {
    // SAFETY: the first four bytes.
    let [first] = unsafe { load::<u32, 1>(src, 0) };
    // SAFETY: the last four bytes.
    let [last] = unsafe { load::<u32, 1>(src, n - 4) };
    let both = u64::from(u32::from_le(first)) << 32 | u64::from(u32::from_le(last));
    let keyed = both ^ secret(8) ^ secret(16);
    let mixed = (keyed ^ keyed.rotate_left(49) ^ keyed.rotate_left(24)).wrapping_mul(MIX[1]);
    let mixed = (mixed ^ (mixed >> 35).wrapping_add(n as u64)).wrapping_mul(MIX[1]);
    mixed ^ mixed >> 28
}

/// # Safety
/// `src` is readable for `n` bytes, 9 to 16.
#[inline(always)]
unsafe fn upto_16(src: *const u8, n: usize) -> u64 {
    // SAFETY: the first eight bytes.
    let low = unsafe { word(src, 0) } ^ secret(24) ^ secret(32);
    // SAFETY: the last eight bytes.
    let high = unsafe { word(src, n - 8) } ^ secret(40) ^ secret(48);
    let sum = (n as u64).wrapping_add(low.swap_bytes()).wrapping_add(high);
    avalanche(sum.wrapping_add(folded(low, high)))
}

/// Mixes sixteen bytes with sixteen bytes of the secret.
///
/// # Safety
/// Sixteen bytes at `src + at` are readable.
#[inline(always)]
unsafe fn mixed(src: *const u8, at: usize, key: usize) -> u64 {
    // SAFETY: the first eight of the sixteen bytes.
    let low = unsafe { word(src, at) };
    // SAFETY: the last eight of the sixteen bytes.
    let high = unsafe { word(src, at + 8) };
    folded(low ^ secret(key), high ^ secret(key + 8))
}

/// # Safety
/// `src` is readable for `n` bytes, 17 to 128.
#[inline(always)]
unsafe fn upto_128(src: *const u8, n: usize) -> u64 {
    let mut sum = (n as u64).wrapping_mul(PRIME64[0]);
    let mut pair = 0;
    while 32 * pair < n {
        // SAFETY: `n > 32 * pair`, so sixteen bytes remain on each side: `16 * pair + 16 <= n`.
        let head = unsafe { mixed(src, 16 * pair, 32 * pair) };
        // SAFETY: as above.
        let tail = unsafe { mixed(src, n - 16 * pair - 16, 32 * pair + 16) };
        sum = sum.wrapping_add(head).wrapping_add(tail);
        pair += 1;
    }
    avalanche(sum)
}

/// # Safety
/// `src` is readable for `n` bytes, 129 to 240.
#[inline(always)]
unsafe fn upto_240(src: *const u8, n: usize) -> u64 {
    let mut sum = (n as u64).wrapping_mul(PRIME64[0]);
    let mut at = 0;
    while at < 128 {
        // SAFETY: the first 128 bytes.
        sum = sum.wrapping_add(unsafe { mixed(src, at, at) });
        at += 16;
    }
    sum = avalanche(sum);
    while at + 16 <= n {
        // SAFETY: sixteen bytes remain.
        sum = sum.wrapping_add(unsafe { mixed(src, at, at - 128 + 3) });
        at += 16;
    }
    // SAFETY: the last sixteen bytes.
    avalanche(sum.wrapping_add(unsafe { mixed(src, n - 16, 136 - 17) }))
}

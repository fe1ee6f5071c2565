//! Arithmetic modulo the CRC32C polynomial, at compile time. Bit 31 of a word is the coefficient of x^0: the reflected order of
//! the crc32 instruction.

const POLY: u32 = 0x82f6_3b78;

/// Returns `p` times x.
const fn times_x(p: u32) -> u32 {
    if p & 1 == 1 { p >> 1 ^ POLY } else { p >> 1 }
}

/// Returns x to the power of `n`.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub const fn power(n: usize) -> u32 {
    let mut p = 1 << 31;
    let mut i = 0;
    while i < n {
        p = times_x(p);
        i += 1;
    }
    p
}

/// Eight lookup tables, one per byte position in a 64-bit word. Table `k` maps byte `b` to the CRC of `b` followed by `k` zero
/// bytes.
pub const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut p = byte as u32;
        let mut step = 0;
        while step < 64 {
            p = times_x(p);
            step += 1;
            if step % 8 == 0 {
                tables[step / 8 - 1][byte] = p;
            }
        }
        byte += 1;
    }
    tables
}

/// Returns the factor for a carry-less product that advances a CRC over `bytes` zero bytes. The exponent is reduced by 33,
/// because the product of two 32-bit words, reduced by the crc32 instruction, has an extra factor x^33.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub const fn over(bytes: usize) -> u64 {
    power(8 * bytes - 33) as u64
}

/// Returns the two factors for carry-less products that advance the halves of a 128-bit value over `bytes` bytes.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub const fn fold(bytes: usize) -> [u64; 2] {
    [power(8 * bytes + 31) as u64, power(8 * bytes - 33) as u64]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_and_tables_are_the_published_ones() {
        assert_eq!(tables()[0][1], 0xf26b_8303);
        assert_eq!(tables()[0][255], 0xad7d_5351);
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            assert_eq!(fold(16), [0xf20c_0dfe, 0x493c_7d27]);
            assert_eq!(fold(64), [0x740e_ef02, 0x9e4a_ddf8]);
        }
    }
}

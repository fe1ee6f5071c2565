//! The rolling sum of rsync and zsync, which finds equal blocks of two files at any offset.

/// Number of bytes that [`RollingSum::push`] adds with 16-bit arithmetic at a time.
const CHUNK: usize = 256;

/// The sum of a block that can move by one byte. Only the lower 16 bits of each field are used.
#[derive(Clone, Copy, Debug, Default)]
pub struct RollingSum {
    sum: u32,
    weighted: u32,
}

impl RollingSum {
    /// Appends bytes to the block.
    pub fn push(&mut self, bytes: &[u8]) {
        let (chunks, rest) = bytes.as_chunks::<CHUNK>();
        for chunk in chunks {
            // The compiler can use vector instructions: the sums have 16 bits, and no iteration needs the result of
            // another.
            let (mut sum, mut weighted) = (0_u16, 0_u16);
            for (n, byte) in chunk.iter().enumerate() {
                let (byte, weight) = (u16::from(*byte), (CHUNK - n) as u16);
                sum = sum.wrapping_add(byte);
                weighted = weighted.wrapping_add(weight.wrapping_mul(byte));
            }
            let before = self.sum.wrapping_mul(CHUNK as u32);
            self.weighted = self.weighted.wrapping_add(before).wrapping_add(u32::from(weighted));
            self.sum = self.sum.wrapping_add(u32::from(sum));
        }
        for byte in rest {
            self.sum = self.sum.wrapping_add(u32::from(*byte));
            self.weighted = self.weighted.wrapping_add(self.sum);
        }
    }

    /// Moves the block, which has `len` bytes, by one byte: removes its first byte `first`, and appends `next`.
    #[inline]
    pub fn roll(&mut self, len: u32, first: u8, next: u8) {
        self.sum = self.sum.wrapping_add(u32::from(next)).wrapping_sub(u32::from(first));
        let left = len.wrapping_mul(u32::from(first));
        self.weighted = self.weighted.wrapping_sub(left).wrapping_add(self.sum);
    }

    /// Returns the sum.
    #[inline]
    #[must_use]
    pub fn value(self) -> u32 {
        (self.sum & 0xffff) | (self.weighted << 16)
    }

    /// Returns the sum of a block.
    #[must_use]
    pub fn of(block: &[u8]) -> u32 {
        let mut sum = Self::default();
        sum.push(block);
        sum.value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_what_the_format_describes() {
        let bytes: Vec<u8> = (0..5000_u32).map(|n| ((n * n) >> 3) as u8).collect();
        for len in [0, 1, 255, 256, 257, 1024, 5000] {
            let (mut a, mut b) = (0_u64, 0_u64);
            for byte in &bytes[..len] {
                a += u64::from(*byte);
                b += a;
            }
            let expected = a % (1 << 16) + ((b % (1 << 16)) << 16);
            assert_eq!(u64::from(RollingSum::of(&bytes[..len])), expected, "{len}");
        }
    }

    #[test]
    fn a_sum_moves_by_one_byte() {
        let bytes: Vec<u8> = (0..70_000_u64).map(|n| ((n * n) >> 5) as u8).collect();
        for len in [1, 1024, 65_536] {
            let mut sum = RollingSum::default();
            sum.push(&bytes[..len]);
            for at in 0..bytes.len() - len {
                sum.roll(len as u32, bytes[at], bytes[at + len]);
                if at % 997 == 0 {
                    assert_eq!(sum.value(), RollingSum::of(&bytes[at + 1..][..len]), "{len} {at}");
                }
            }
        }
    }
}

//! Bytes that are known by their place, so that any part of a stream can be checked as it comes.

use crate::measure::stats::Random;

/// A long block without a pattern of its own, over and over again.
#[derive(Debug)]
pub(super) struct Pattern(Vec<u8>);

/// A prime, so that no buffer's length divides it and a chunk that comes twice is found.
const PERIOD: usize = 1_048_573;

impl Pattern {
    /// The same bytes every time.
    pub fn new() -> Self {
        let mut random = Random::new(1);
        let mut block: Vec<u8> =
            (0..PERIOD.div_ceil(8)).flat_map(|_| random.bits().to_le_bytes()).collect();
        block.truncate(PERIOD);
        Self(block)
    }

    /// The bytes from place `at` on, at most `most` of them and at least one.
    pub fn piece(&self, at: u64, most: usize) -> &[u8] {
        let start = (at % PERIOD as u64) as usize;
        &self.0[start..(start + most.max(1)).min(PERIOD)]
    }

    /// Writes what belongs at place `at`.
    pub fn fill(&self, at: u64, out: &mut [u8]) {
        let mut done = 0;
        while done < out.len() {
            let piece = self.piece(at + done as u64, out.len() - done);
            out[done..done + piece.len()].copy_from_slice(piece);
            done += piece.len();
        }
    }

    /// The first place from `at` on where these bytes are other ones.
    pub fn first_difference(&self, at: u64, bytes: &[u8]) -> Option<u64> {
        let mut done = 0;
        while done < bytes.len() {
            let piece = self.piece(at + done as u64, bytes.len() - done);
            let own = &bytes[done..done + piece.len()];
            if own != piece {
                let same = own.iter().zip(piece).take_while(|(a, b)| a == b).count();
                return Some(at + (done + same) as u64);
            }
            done += piece.len();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_byte_is_found_at_its_place_also_across_the_seam() {
        let pattern = Pattern::new();
        let at = PERIOD as u64 - 100;
        let mut bytes = vec![0; 300];
        pattern.fill(at, &mut bytes);
        assert_eq!(pattern.first_difference(at, &bytes), None);
        bytes[150] ^= 1;
        assert_eq!(pattern.first_difference(at, &bytes), Some(at + 150));
        assert_eq!(pattern.first_difference(at + 1, &bytes[..1]), Some(at + 1));
    }
}

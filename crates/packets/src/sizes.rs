//! Packet sizes: a fixed size, or the simple IMIX.

use clap::ValueEnum;
use std::str::FromStr;

/// Of twelve packets, seven have 64 bytes, four 594 and one 1518: the usual definition of "simple
/// IMIX".
const IMIX: [u16; 12] = [64, 594, 64, 64, 594, 64, 1518, 64, 594, 64, 594, 64];
const LEAST: u16 = 60;
const MOST: u16 = 1518;
/// Length of a sequence of drawn sizes: too long for a branch predictor to memorise.
const DRAWN: usize = 1 << 14;

/// Sizes of the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketSizes {
    Fixed(u16),
    Imix,
}

/// Order of the sizes of a mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PacketOrder {
    /// Drawn independently: an upper bound for what mispredicted branches cost.
    Iid,
    /// The twelve sizes repeated in a fixed order: predictable.
    Rotating,
}

impl FromStr for PacketSizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "imix" {
            return Ok(Self::Imix);
        }
        let size = text.parse().ok().filter(|size| (LEAST..=MOST).contains(size));
        size.map(Self::Fixed).ok_or(format!("expected imix or a size from {LEAST} to {MOST}"))
    }
}

impl PacketSizes {
    /// Returns the sequence of sizes, which is repeated.
    pub fn sequence(self, order: PacketOrder) -> Vec<u16> {
        match (self, order) {
            (Self::Fixed(size), _) => vec![size],
            (Self::Imix, PacketOrder::Rotating) => IMIX.to_vec(),
            (Self::Imix, PacketOrder::Iid) => {
                let mut state = 0x2545_f491_4f6c_dd1d_u64;
                let draw = || {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    IMIX[(state >> 33) as usize % IMIX.len()]
                };
                std::iter::repeat_with(draw).take(DRAWN).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_a_number_or_the_mix() {
        assert_eq!("imix".parse(), Ok(PacketSizes::Imix));
        assert_eq!("64".parse(), Ok(PacketSizes::Fixed(64)));
        for wrong in ["", "59", "1519", "64B", "-1"] {
            assert!(wrong.parse::<PacketSizes>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_drawn_mix_has_the_shares_of_the_mix() {
        let drawn = PacketSizes::Imix.sequence(PacketOrder::Iid);
        let share = |size| drawn.iter().filter(|s| **s == size).count() as f64 / drawn.len() as f64;
        assert!((share(64) - 7.0 / 12.0).abs() < 0.02);
        assert!((share(1518) - 1.0 / 12.0).abs() < 0.02);
    }
}

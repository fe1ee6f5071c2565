//! Messages that the tests of rings send, in every language.

use crate::Dice;

/// Writes message `seq` into a buffer. Its length and bytes depend on `seq`. `Messages` in java/src/test writes equal
/// messages.
pub fn message(seq: u64, into: &mut Vec<u8>) {
    let mut dice = Dice::seeded(seq + 1);
    let odd = [0, 1, 4095, 4097, 32, 33];
    let len = match dice.below(20) {
        at @ 0..6 => odd[at as usize],
        _ => dice.below(2000),
    };
    into.clear();
    into.extend((0..len).map(|at| (seq.wrapping_mul(31) ^ at.wrapping_mul(7) ^ (at >> 8)) as u8));
}

//! Tests every row with random sizes, offsets and splits.

use crate::support;

use proptest::prelude::*;
use support::{checksums, crc32c, fills, hashes, kernels, pattern};
use xxhash_rust::xxh3::xxh3_64;

const MOST: usize = 40_000;

/// Returns sizes that are mostly short, like those of real copies, and sometimes long.
fn size() -> impl Strategy<Value = usize> {
    prop_oneof![0..300usize, 300..5000usize, 5000..MOST]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_part_copied_anywhere_changes_nothing_else(n in size(), from in 0..4200usize, to in 0..4200usize) {
        let source = pattern(MOST + 4200);
        let mut expected = vec![0x55; MOST + 4200];
        expected[to..to + n].copy_from_slice(&source[from..from + n]);
        for row in kernels("any_part_copied_anywhere_changes_nothing_else") {
            let mut sink = vec![0x55; MOST + 4200];
            row.ready().unwrap().copy(&mut sink[to..to + n], &source[from..from + n]);
            prop_assert!(sink == expected, "{}", row.name);
        }
    }

    #[test]
    fn any_part_moves_within_its_buffer(n in size(), from in 0..4200usize, to in 0..4200usize) {
        let mut expected = pattern(MOST + 4200);
        expected.copy_within(from..from + n, to);
        for row in kernels("any_part_moves_within_its_buffer") {
            let mut bytes = pattern(MOST + 4200);
            if row.ready().unwrap().copy_within(&mut bytes, from..from + n, to) {
                prop_assert!(bytes == expected, "{}", row.name);
            }
        }
    }

    #[test]
    fn any_part_is_filled_and_nothing_else(n in size(), to in 0..4200usize, byte: u8) {
        let mut expected = pattern(MOST + 4200);
        expected[to..to + n].fill(byte);
        for row in fills("any_part_is_filled_and_nothing_else") {
            let mut sink = pattern(MOST + 4200);
            row.ready().unwrap().fill(&mut sink[to..to + n], byte);
            prop_assert!(sink == expected, "{}", row.name);
        }
    }

    #[test]
    fn a_sum_carried_over_a_cut_is_the_sum_of_the_whole(
        bytes in prop::collection::vec(any::<u8>(), 0..9000), cut: prop::sample::Index, start: u32,
    ) {
        let (head, tail) = bytes.split_at(cut.index(bytes.len() + 1));
        let expected = crc32c(&bytes, start);
        for row in checksums("a_sum_carried_over_a_cut_is_the_sum_of_the_whole") {
            let ready = row.ready().unwrap();
            let mut sink = vec![0; bytes.len()];
            let (first, second) = sink.split_at_mut(head.len());
            let crc = ready.copy(first, head, start);
            prop_assert_eq!(ready.copy(second, tail, crc), expected, "{}", row.name);
            prop_assert_eq!(ready.sum(tail, ready.sum(head, start)), expected, "{}", row.name);
            prop_assert!(sink == bytes, "{}", row.name);
        }
    }

    #[test]
    fn a_hash_is_of_the_bytes_and_of_nothing_beside_them(
        bytes in prop::collection::vec(any::<u8>(), 0..9000),
        from in 0..64usize, to in 0..64usize, beside: u8,
    ) {
        let expected = xxh3_64(&bytes);
        let mut source = vec![beside; from + bytes.len() + 64];
        source[from..from + bytes.len()].copy_from_slice(&bytes);
        let source = &source[from..from + bytes.len()];
        for row in hashes("a_hash_is_of_the_bytes_and_of_nothing_beside_them") {
            let ready = row.ready().unwrap();
            let mut sink = vec![beside; to + bytes.len() + 64];
            let hash = ready.copy(&mut sink[to..to + bytes.len()], source);
            prop_assert_eq!(hash, expected, "{}", row.name);
            prop_assert_eq!(ready.sum(source), expected, "{}", row.name);
            let (before, rest) = sink.split_at(to);
            let (copied, behind) = rest.split_at(bytes.len());
            prop_assert!(copied == bytes, "{}", row.name);
            prop_assert!(before.iter().chain(behind).all(|byte| *byte == beside), "{}", row.name);
        }
    }
}

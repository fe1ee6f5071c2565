//! Compares every hash row with another implementation of XXH3.

use crate::support;

use support::{Bench, edges, hashes, pattern};
use xxhash_rust::xxh3::xxh3_64;

/// Number of bytes after which XXH3 scrambles its sums.
const BLOCK: usize = 1024;
/// Number of blocks whose ends are tested.
const BLOCKS: usize = if cfg!(miri) { 2 } else { 20 };

#[test]
fn every_hash_copies_and_hashes_every_size() {
    let dense = if cfg!(miri) { 300 } else { 2 * BLOCK };
    // The published hash of empty input.
    assert_eq!(xxh3_64(b""), 0x2d06_8005_38d3_94c2);
    let around = (2..=BLOCKS).map(|block| block * BLOCK);
    let reach = if cfg!(miri) { 1 } else { 66 };
    let around = around.flat_map(|end| end - reach..=end + reach);
    let sizes: Vec<usize> = (0..=dense).chain(around).chain([BLOCK * BLOCKS * 4 + 777]).collect();
    let most = *sizes.last().expect("some sizes");
    let source = pattern(most);
    for row in hashes("every_hash_copies_and_hashes_every_size") {
        eprintln!("{}", row.name);
        let ready = row.ready().expect("an available row");
        let mut sink = vec![0; most];
        for &n in &sizes {
            let expected = xxh3_64(&source[..n]);
            sink[..n].fill(0);
            assert_eq!(ready.copy(&mut sink[..n], &source[..n]), expected, "{n} bytes copied");
            assert!(sink[..n] == source[..n], "{n} bytes");
            assert_eq!(ready.sum(&source[..n]), expected, "{n} bytes");
        }
    }
}

#[test]
fn every_hash_copies_at_every_misalignment() {
    let mut bench = Bench::new(BLOCKS * BLOCK + 512);
    let more = [129, 239, 240, 241, 303, 304, 305, 1000, BLOCK - 1, BLOCK, BLOCK + 1, BLOCK + 65];
    let most = if cfg!(miri) { 305 } else { usize::MAX };
    let step = if cfg!(miri) { 21 } else { 1 };
    for row in hashes("every_hash_copies_at_every_misalignment") {
        eprintln!("{}", row.name);
        let ready = row.ready().expect("an available row");
        for n in edges().into_iter().chain(more).filter(|n| *n <= most).step_by(step) {
            for at in (0..64).step_by(step).flat_map(|from| [(from, 0), (0, from), (from, 63)]) {
                bench.copy(n, at, |sink, source| {
                    assert_eq!(ready.copy(sink, source), xxh3_64(source), "{n} bytes, {at:?}");
                });
            }
        }
    }
}

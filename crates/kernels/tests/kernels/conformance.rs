//! Compares every row of every table with a naive loop. No test names a row.

use crate::support;

use support::{Bench, checksums, crc32c, edges, fills, kernels, pattern};

#[test]
fn sixty_four_sizes_in_a_row_have_every_pair_of_misalignments() {
    let mut seen = [[false; 64]; 64];
    for (n, from) in (100..164).flat_map(|n| (0..64).map(move |from| (n, from))) {
        seen[from][support::beside(from, n)] = true;
    }
    assert!(seen.as_flattened().iter().all(|pair| *pair));
    let apart = |from| (support::beside(from, 5) + 64 - from) % 64;
    let apart: std::collections::BTreeSet<usize> = (0..64).map(apart).collect();
    assert_eq!(apart.len(), 64);
}

#[test]
fn every_kernel_copies_every_size_at_every_misalignment() {
    for row in kernels("every_kernel_copies_every_size_at_every_misalignment") {
        eprintln!("{}", row.name);
        support::copies_like_the_oracle(row);
    }
}

#[test]
fn every_kernel_that_can_move_moves_over_every_overlap() {
    for row in kernels("every_kernel_that_can_move_moves_over_every_overlap") {
        eprintln!("{}", row.name);
        support::moves_like_the_oracle(row);
    }
}

#[test]
fn every_fill_writes_every_size_at_every_misalignment() {
    for row in fills("every_fill_writes_every_size_at_every_misalignment") {
        eprintln!("{}", row.name);
        support::fills_like_the_oracle(row);
    }
}

#[test]
fn every_checksum_copies_and_sums_like_the_definition() {
    let most = if cfg!(miri) { 80 } else { 20_000 };
    // Computes the sums of all prefixes in one pass.
    let source = pattern(most + 512);
    let mut prefix = vec![0; most + 1];
    for n in 0..most {
        prefix[n + 1] = crc32c(&source[n..=n], prefix[n]);
    }
    assert_eq!(crc32c(b"123456789", 0), 0xe306_9283);
    for row in checksums("every_checksum_copies_and_sums_like_the_definition") {
        eprintln!("{}", row.name);
        let ready = row.ready().expect("an available row");
        assert_eq!(ready.sum(b"123456789", 0), 0xe306_9283);
        let mut sink = vec![0; most];
        for n in (0..=most).filter(|n| *n < 5000 || n % 61 == 0) {
            sink[..n].fill(0);
            assert_eq!(ready.copy(&mut sink[..n], &source[..n], 0), prefix[n], "{n} bytes");
            assert!(sink[..n] == source[..n], "{n} bytes");
            assert_eq!(ready.sum(&source[..n], 0), prefix[n], "{n} bytes");
        }
        let mut bench = Bench::new(most + 512);
        for n in
            edges().into_iter().chain([255, 256, 1535, 1536, 1537, 4999, 16_384, 16_385, 17_000])
        {
            for at in [(0, 1), (1, 0), (7, 63), (33, 5)] {
                if n > most {
                    continue;
                }
                bench.copy(n, at, |sink, source| {
                    let crc = ready.copy(sink, source, n as u32);
                    assert_eq!(crc, crc32c(source, n as u32), "{n} bytes");
                });
            }
        }
    }
}

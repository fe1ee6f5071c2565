//! The checks that every row must pass. The tests pass rows of the tables to them.
// Each test binary uses only some of these functions.
#![allow(dead_code)]

#[cfg(not(miri))]
pub mod guarded;

use thalweg_kernels::{CHECKSUMS, Checksum, FILLS, Fill, HASHES, Hash, KERNELS, Kernel};

/// Number of bytes around a sink that are checked for writes beyond it.
pub const MARGIN: usize = 128;
const CLEAN: u8 = 0xa5;

/// Returns the copy kernels that this machine can run. The others are reported as skipped.
pub fn kernels(test: &str) -> impl Iterator<Item = &'static Kernel> {
    runnable(test, KERNELS, |row| (row.name, row.is_available))
}

/// Like [`kernels`], for another table.
pub fn fills(test: &str) -> impl Iterator<Item = &'static Fill> {
    runnable(test, FILLS, |row| (row.name, row.is_available))
}

/// Like [`kernels`], for another table.
pub fn checksums(test: &str) -> impl Iterator<Item = &'static Checksum> {
    runnable(test, CHECKSUMS, |row| (row.name, row.is_available))
}

/// Like [`kernels`], for another table.
pub fn hashes(test: &str) -> impl Iterator<Item = &'static Hash> {
    runnable(test, HASHES, |row| (row.name, row.is_available))
}

type About = (&'static str, fn() -> bool);

fn runnable<R>(
    test: &str,
    rows: &'static [R],
    about: fn(&R) -> About,
) -> impl Iterator<Item = &'static R> {
    rows.iter().filter(move |row| {
        let (name, is_available) = about(row);
        if !is_available() {
            skip(test, &format!("this CPU cannot run {name}"));
        }
        is_available()
    })
}

use thalweg_testing::Sample;
pub use thalweg_testing::skip;
/// Returns bytes with a period that is not a power of two. An offset that is wrong by a power of two therefore shows.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8 ^ (i / 251) as u8).collect()
}

/// Returns every size up to `dense`, and then sizes near the powers of two up to `most`.
pub fn sizes(dense: usize, most: usize) -> Vec<usize> {
    let mut sizes: Vec<usize> = (0..=dense).collect();
    let mut edge = 4096;
    while edge <= most {
        sizes.extend([edge - 65, edge - 1, edge, edge + 1, edge + 63, edge + 500]);
        edge *= 2;
    }
    sizes.retain(|&n| n <= dense || n <= most);
    sizes
}

/// Returns the sizes near multiples of every vector width, at which loops take other branches.
pub fn edges() -> Vec<usize> {
    let mut edges = Vec::new();
    for width in [1, 2, 4, 8, 16, 32, 64] {
        for times in [1, 2, 4, 5, 8, 9, 12] {
            let n = width * times;
            edges.extend([n - 1, n, n + 1]);
        }
    }
    edges.sort_unstable();
    edges.dedup();
    edges
}

/// A sink with margins and a source, reused by all copies. Offset 0 of both is aligned to 64 bytes.
pub struct Bench {
    source: Vec<u8>,
    sink: Vec<u8>,
    source_base: usize,
    sink_base: usize,
}

impl Bench {
    pub fn new(most: usize) -> Self {
        let room = most + 2 * MARGIN + 2 * 64;
        let (source, sink) = (pattern(room), vec![CLEAN; room]);
        let base = |bytes: &[u8]| MARGIN + bytes.as_ptr().cast::<u8>().align_offset(64) % 64;
        let (source_base, sink_base) = (base(&source), base(&sink));
        Bench { source, sink, source_base, sink_base }
    }

    /// Copies `n` bytes between the offsets `from` and `to`, and checks the sink and its margins.
    pub fn copy(
        &mut self,
        n: usize,
        (from, to): (usize, usize),
        run: impl FnOnce(&mut [u8], &[u8]),
    ) {
        let source = &self.source[self.source_base + from..][..n];
        let start = self.sink_base + to;
        self.sink[start - MARGIN..start + n + MARGIN].fill(CLEAN);
        run(&mut self.sink[start..start + n], source);
        assert!(self.sink[start..start + n] == *source, "{n} bytes, {from} to {to}: wrong bytes");
        self.margins(start, n);
    }

    /// Fills `n` bytes at offset `to`, and checks the sink and its margins.
    pub fn fill(&mut self, n: usize, to: usize, run: impl FnOnce(&mut [u8], u8)) {
        let start = self.sink_base + to;
        self.sink[start - MARGIN..start + n + MARGIN].fill(CLEAN);
        let byte = n as u8 ^ 0x3c;
        run(&mut self.sink[start..start + n], byte);
        assert!(self.sink[start..start + n].iter().all(|&b| b == byte), "{n} bytes to {to}: wrong");
        self.margins(start, n);
    }

    fn margins(&self, start: usize, n: usize) {
        let (before, after) = (&self.sink[start - MARGIN..start], &self.sink[start + n..]);
        assert!(*before == [CLEAN; MARGIN], "{n} bytes: written before the sink");
        assert!(after[..MARGIN] == [CLEAN; MARGIN], "{n} bytes: written behind the sink");
    }
}

/// Returns the sink's misalignment for this misalignment of the source. 64 consecutive sizes cover every pair of
/// misalignments. Each size covers every distance between the two, modulo 64.
pub fn beside(from: usize, n: usize) -> usize {
    (6 * from + n) % 64
}

/// Returns the sizes that this run tests. Loops take other branches at small sizes and at edges, so those are always
/// tested, and a sixth of the others.
fn sampled_sizes(name: &str, dense: usize, most: usize) -> Vec<usize> {
    // Miri has no clock for the seed, and tests small sizes only.
    let mut sample = (!cfg!(miri)).then(|| Sample::new(name, 6));
    let mut is_tested =
        |n: &usize| *n < 1024 || *n > dense || sample.as_mut().is_none_or(Sample::takes);
    sizes(dense, most).into_iter().filter(|n| is_tested(n)).collect()
}

/// Checks a copy kernel with all sizes and misalignments.
pub fn copies_like_the_oracle(row: &'static Kernel) {
    let ready = row.ready().expect("an available row");
    let (dense, most) = if cfg!(miri) {
        (70, 70)
    } else if cfg!(debug_assertions) {
        (8192, 1 << 18)
    } else {
        (8192, 1 << 21)
    };
    let step = if cfg!(miri) { 31 } else { 1 };
    let mut bench = Bench::new(most + 512);
    for n in sampled_sizes(row.name, dense, most) {
        for from in (0..64).step_by(if n > dense { 13 } else { step }) {
            bench.copy(n, (from, beside(from, n)), |sink, source| ready.copy(sink, source));
        }
    }
    for n in edges().into_iter().filter(|&n| !cfg!(miri) || n < 200) {
        for to in (0..64).step_by(step) {
            for from in (0..64).step_by(step) {
                bench.copy(n, (from, to), |sink, source| ready.copy(sink, source));
            }
        }
    }
}

/// Checks a kernel that supports overlapping regions with all kinds of overlap.
pub fn moves_like_the_oracle(row: &'static Kernel) {
    let ready = row.ready().expect("an available row");
    if row.move_.is_none() {
        let mut untouched = *b"untouched";
        assert!(!ready.copy_within(&mut untouched, 0..4, 2));
        assert_eq!(&untouched, b"untouched");
        return;
    }
    let all: &[usize] = if cfg!(miri) { &[0, 1, 7, 33] } else { &[0, 1, 2, 5, 17, 33, 64, 100] };
    for &n in all {
        for to in 0..=2 * n + 2 {
            moved(ready, n, n + 1, to);
        }
    }
    let long = if cfg!(miri) { vec![65, 140] } else { edges() };
    for n in long.into_iter().chain([1000, 1500, 4096, 4097]) {
        for shift in [1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 300, 1024]
        {
            if shift <= n && !(cfg!(miri) && (n > 200 || shift % 16 == 0)) {
                moved(ready, n, n + 64, n + 64 - shift);
                moved(ready, n, n + 64, n + 64 + shift);
            }
        }
    }
    if !cfg!(miri) {
        // Distances near a multiple of a page (4K aliasing), in both directions.
        for n in [600, 3000, 9000] {
            for gap in [4096 - 48, 4096 - 1, 4096, 4096 + 1, 4096 + 48, 8192 + 16] {
                moved(ready, n, 0, gap);
                moved(ready, n, gap, 0);
            }
        }
    }
}

fn moved(ready: thalweg_kernels::Ready, n: usize, from: usize, to: usize) {
    let mut bytes = pattern(from.max(to) + n + MARGIN);
    let mut expected = bytes.clone();
    expected.copy_within(from..from + n, to);
    assert!(ready.copy_within(&mut bytes, from..from + n, to));
    assert!(bytes == expected, "{n} bytes moved from {from} to {to}");
}

/// Checks a fill with all sizes and misalignments.
pub fn fills_like_the_oracle(row: &'static Fill) {
    let ready = row.ready().expect("an available row");
    let (dense, most) = if cfg!(miri) { (70, 70) } else { (8192, 1 << 17) };
    let step = if cfg!(miri) { 31 } else { 1 };
    let mut bench = Bench::new(most + 512);
    for n in sampled_sizes(row.name, dense, most) {
        for to in (0..64).step_by(if n > dense { 13 } else { step }) {
            bench.fill(n, to, |sink, byte| ready.fill(sink, byte));
        }
    }
    for n in edges().into_iter().filter(|&n| !cfg!(miri) || n < 200) {
        for to in (0..64).step_by(step) {
            bench.fill(n, to, |sink, byte| ready.fill(sink, byte));
        }
    }
}

/// Computes the CRC32C bit by bit, from its definition.
pub fn crc32c(bytes: &[u8], crc: u32) -> u32 {
    let mut crc = !crc;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}

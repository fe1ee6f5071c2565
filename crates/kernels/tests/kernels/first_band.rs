//! Tests `tuned` with each row as its first band. Each row needs a separate process, because a
//! process can install bands only once.

use crate::support;

use std::process::Command;

use support::guarded::{Guarded, ROOM};
use support::{Bench, edges, kernels, pattern};
use thalweg_kernels::{Bands, KERNELS, Kernel, Ready, by_name};

/// The environment variable that passes the row's name to the separate process.
const FIRST: &str = "THALWEG_TEST_FIRST_BAND";
/// Ends of the test's bands. The C library serves larger sizes.
const ENDS: [usize; 2] = [700, 5000];

#[test]
fn every_row_can_be_the_first_band() {
    let tests = std::env::current_exe().expect("this test has a file");
    for row in kernels("every_row_can_be_the_first_band").filter(|row| row.name != "tuned") {
        let tried = Command::new(&tests)
            .args(["--ignored", "--exact", "first_band::the_row_that_is_named_is_a_first_band"])
            .env(FIRST, row.name)
            .output()
            .expect("the same program again");
        let said = String::from_utf8_lossy(&tried.stdout);
        assert!(tried.status.success(), "{}: {said}", row.name);
        assert!(said.contains("1 passed"), "{}: it was not tried: {said}", row.name);
    }
}

#[test]
#[ignore = "every_row_can_be_the_first_band runs it, once for each row"]
fn the_row_that_is_named_is_a_first_band() {
    let name = std::env::var(FIRST).expect("the name of a row");
    let row = by_name(&name).expect("a row of this name");
    let tuned = by_name("tuned").expect("the row tuned");
    let before = tuned.ready().expect("it is always available");
    // The second band is a row that copies with other instructions.
    let next = KERNELS.iter().find(|next| next.name == "simple").expect("the byte loop");
    Bands::of(&[(ENDS[0], row), (ENDS[1], next)]).unwrap().install().unwrap();
    for ready in [tuned.ready().unwrap(), before] {
        copies(ready);
        moves(ready, row);
        stays_between_the_guards(ready);
    }
}

/// Returns all sizes of the first band, some larger ones, and those near both ends.
fn sizes() -> impl Iterator<Item = usize> {
    let around = ENDS.into_iter().flat_map(|end| end - 2..end + 3);
    (0..=ENDS[0]).chain(edges()).chain(around).chain([1000, 3000, 4095, 4097, 9000, 70_001])
}

fn copies(ready: Ready) {
    let mut bench = Bench::new(70_001 + 512);
    for n in sizes() {
        for at in [(0, 0), (n * 7 % 64, n * 13 % 64), (33, n % 64), (n * 3 % 64, 0)] {
            bench.copy(n, at, |sink, source| ready.copy(sink, source));
        }
    }
}

fn moves(ready: Ready, row: &Kernel) {
    for n in sizes().filter(|n| *n > 0) {
        for shift in [1, 15, 16, 33, 64, 100, 700] {
            let mut bytes = pattern(n + 2 * shift);
            let mut expected = bytes.clone();
            expected.copy_within(shift..shift + n, 0);
            expected.copy_within(..n, shift);
            assert!(ready.copy_within(&mut bytes, shift..shift + n, 0));
            assert!(ready.copy_within(&mut bytes, ..n, shift));
            assert!(bytes == expected, "{}: {n} bytes by {shift}", row.name);
        }
    }
}

fn stays_between_the_guards(ready: Ready) {
    let (mut source, mut sink) = (Guarded::new(), Guarded::new());
    source.part(ROOM, false).copy_from_slice(&pattern(ROOM));
    for n in sizes().filter(|n| *n <= ROOM) {
        for (source_at_end, sink_at_end) in
            [(false, false), (false, true), (true, false), (true, true)]
        {
            let (from, to) = (source.part(n, source_at_end), sink.part(n, sink_at_end));
            to.fill(0);
            ready.copy(to, from);
            assert!(to == from, "{n} bytes");
        }
    }
}

//! Runs every row between inaccessible pages, so that a read or write one byte too far faults.

use crate::support;

use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use support::guarded::{Guarded, PAGE, ROOM};
use support::{checksums, edges, fills, hashes, kernels, pattern};

fn lengths() -> impl Iterator<Item = usize> {
    (0..=600).chain(edges()).chain((601..ROOM - 64).step_by(97)).chain([PAGE - 1, PAGE, PAGE + 1])
}

/// The running test holds this lock, because the signal handler can name only one row at a time.
static TURN: Mutex<()> = Mutex::new(());
static LINE: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
static LINE_LEN: AtomicUsize = AtomicUsize::new(0);

/// Makes the signal handler report this row as the cause of a fault from now on.
fn blame(name: &str) {
    // The line is formatted in advance, because a signal handler must not allocate.
    let line = format!("touched a guard page: {name}\n").leak();
    LINE.store(line.as_mut_ptr(), Ordering::Relaxed);
    LINE_LEN.store(line.len(), Ordering::Relaxed);
    // SAFETY: the handler only writes and ends the process.
    unsafe { libc::signal(libc::SIGSEGV, faulted as *const () as libc::sighandler_t) };
}

extern "C" fn faulted(_: libc::c_int) {
    let (line, len) = (LINE.load(Ordering::Relaxed), LINE_LEN.load(Ordering::Relaxed));
    // SAFETY: write is safe in a handler; the line was leaked.
    unsafe { libc::write(2, line.cast(), len) };
    // SAFETY: abort is safe in a handler.
    unsafe { libc::abort() };
}

#[test]
fn no_kernel_touches_a_byte_beside_source_or_sink() {
    let _turn = TURN.lock().unwrap();
    let (mut source, mut sink) = (Guarded::new(), Guarded::new());
    source.part(ROOM, false).copy_from_slice(&pattern(ROOM));
    for row in kernels("no_kernel_touches_a_byte_beside_source_or_sink") {
        blame(row.name);
        let ready = row.ready().unwrap();
        for n in lengths() {
            for (source_at_end, sink_at_end) in
                [(false, false), (false, true), (true, false), (true, true)]
            {
                let (from, to) = (source.part(n, source_at_end), sink.part(n, sink_at_end));
                to.fill(0);
                ready.copy(to, from);
                assert!(to == from, "{}: {n} bytes", row.name);
            }
        }
    }
}

#[test]
fn no_kernel_touches_a_byte_beside_what_it_moves() {
    let _turn = TURN.lock().unwrap();
    let mut bytes = Guarded::new();
    for row in kernels("no_kernel_touches_a_byte_beside_what_it_moves") {
        blame(row.name);
        let ready = row.ready().unwrap();
        for n in lengths().filter(|&n| n > 0) {
            for at_end in [false, true] {
                let both = bytes.part(n, at_end);
                both.copy_from_slice(&pattern(n));
                let mut expected = both.to_vec();
                let shift = n / 3;
                expected.copy_within(shift.., 0);
                expected.copy_within(..n - shift, shift);
                if ready.copy_within(both, shift.., 0) {
                    assert!(ready.copy_within(both, ..n - shift, shift));
                    assert!(both == expected, "{}: {n} bytes", row.name);
                }
            }
        }
    }
}

#[test]
fn no_fill_touches_a_byte_beside_the_sink() {
    let _turn = TURN.lock().unwrap();
    let mut sink = Guarded::new();
    for row in fills("no_fill_touches_a_byte_beside_the_sink") {
        blame(row.name);
        for n in lengths() {
            for at_end in [false, true] {
                let to = sink.part(n, at_end);
                row.ready().unwrap().fill(to, n as u8);
                assert!(to.iter().all(|&b| b == n as u8), "{}: {n} bytes", row.name);
            }
        }
    }
}

#[test]
fn no_checksum_touches_a_byte_beside_source_or_sink() {
    let _turn = TURN.lock().unwrap();
    let (mut source, mut sink) = (Guarded::new(), Guarded::new());
    source.part(ROOM, false).copy_from_slice(&pattern(ROOM));
    for row in checksums("no_checksum_touches_a_byte_beside_source_or_sink") {
        blame(row.name);
        let ready = row.ready().unwrap();
        for n in lengths() {
            for at_end in [false, true] {
                let (from, to) = (source.part(n, at_end), sink.part(n, at_end));
                let crc = ready.copy(to, from, 0);
                assert_eq!(ready.sum(from, 0), crc, "{}: {n} bytes", row.name);
                assert!(to == from, "{}: {n} bytes", row.name);
            }
        }
    }
}

#[test]
fn no_hash_touches_a_byte_beside_source_or_sink() {
    let _turn = TURN.lock().unwrap();
    let (mut source, mut sink) = (Guarded::new(), Guarded::new());
    source.part(ROOM, false).copy_from_slice(&pattern(ROOM));
    for row in hashes("no_hash_touches_a_byte_beside_source_or_sink") {
        blame(row.name);
        let ready = row.ready().unwrap();
        // Also tests sizes near the ends of blocks of 1024 bytes.
        let blocks = (1..=8).flat_map(|block| 1024 * block - 66..1024 * block + 66);
        for n in lengths().chain(blocks) {
            for (source_at_end, sink_at_end) in
                [(false, false), (false, true), (true, false), (true, true)]
            {
                let (from, to) = (source.part(n, source_at_end), sink.part(n, sink_at_end));
                to.fill(0);
                let hash = ready.copy(to, from);
                assert_eq!(ready.sum(from), hash, "{}: {n} bytes", row.name);
                assert!(to == from, "{}: {n} bytes", row.name);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_prefetch_that_reaches_behind_the_source_is_no_fault() {
    let _turn = TURN.lock().unwrap();
    let (mut source, mut sink) = (Guarded::new(), Guarded::new());
    source.part(ROOM, false).copy_from_slice(&pattern(ROOM));
    for distance in [1, 512, PAGE, usize::MAX] {
        thalweg_kernels::set_prefetch_distance(distance);
        assert_eq!(thalweg_kernels::prefetch_distance(), distance);
        for row in kernels("a_prefetch_that_reaches_behind_the_source_is_no_fault") {
            blame(row.name);
            for n in [0, 64, 600, 3000, ROOM] {
                let (from, to) = (source.part(n, true), sink.part(n, true));
                to.fill(0);
                row.ready().unwrap().copy(to, from);
                assert!(to == from, "{}: {n} bytes", row.name);
            }
        }
    }
    thalweg_kernels::set_prefetch_distance(0);
}

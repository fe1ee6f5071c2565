#![allow(clippy::unwrap_used)]
use super::*;
use crate::io::{pread, pwrite, write};
use rustix::fd::AsFd;
use std::fs::File;

/// Creates a ring, or reports a skipped test and returns `None`. A container may forbid io_uring.
/// Rings that the kernel has not freed yet may also use up the user's memory-lock limit.
fn ring<'fd>(depth: u32, buffer: usize) -> Option<Uring<'fd>> {
    match Uring::new(depth, buffer, 4096) {
        Ok(ring) => Some(ring),
        Err(errno @ (Errno::NOSYS | Errno::PERM | Errno::NOMEM)) => {
            eprintln!("skipped: io_uring_setup: {errno}");
            None
        }
        Err(errno) => panic!("io_uring_setup: {errno}"),
    }
}

fn file_with(bytes: &[u8]) -> File {
    let file = tempfile::tempfile().unwrap();
    assert_eq!(pwrite(&file, bytes, 0), Ok(bytes.len()));
    file
}

fn all(ring: &mut Uring<'_>) -> Vec<Completion> {
    let mut seen = Vec::new();
    while ring.in_flight() > 0 {
        seen.push(ring.wait().unwrap());
    }
    seen
}

#[test]
fn bytes_pass_through_a_slot() {
    let (source, sink) = (file_with(b"0123456789"), file_with(b""));
    let Some(mut ring) = ring(2, 64) else { return };
    ring.read(1, source.as_fd(), 2, 64).unwrap();
    assert_eq!((ring.depth(), ring.in_flight(), ring.buffer(1)), (2, 1, None));
    assert_eq!(ring.read(1, source.as_fd(), 2, 64), Err(Errno::BUSY));
    assert_eq!(ring.submit(), Ok(1));
    assert_eq!(ring.wait(), Ok(Completion { slot: 1, op: Op::Read, result: Ok(8) }));
    assert_eq!(&ring.buffer(1).unwrap()[..8], b"23456789");
    ring.buffer_mut(1).unwrap()[3] = b'!';
    ring.write(1, sink.as_fd(), 1, 2..8).unwrap();
    assert_eq!(ring.wait(), Ok(Completion { slot: 1, op: Op::Write, result: Ok(6) }));
    assert_eq!(ring.wait(), Err(Errno::INVAL));
    let mut got = [0; 9];
    assert_eq!(pread(&sink, &mut got, 0), Ok(7));
    assert_eq!(&got[..7], b"\x004!6789");
}

#[test]
fn pairs_fill_every_slot_and_a_short_read_cancels_its_write() {
    let bytes: Vec<u8> = (0..10_000).map(|at| (at % 253) as u8).collect();
    let (source, sink) = (file_with(&bytes), file_with(b""));
    let Some(mut ring) = ring(3, 4096) else { return };
    for slot in 0..3 {
        let at = u64::from(slot) * 4096;
        ring.read_then_write(slot, source.as_fd(), at, sink.as_fd(), at, 4096).unwrap();
    }
    assert_eq!(ring.submit(), Ok(6));
    let seen = all(&mut ring);
    assert_eq!(seen.len(), 6);
    let result = |slot, op| seen.iter().find(|c| c.slot == slot && c.op == op).unwrap().result;
    for slot in 0..2 {
        assert_eq!(result(slot, Op::Read), Ok(4096));
        assert_eq!(result(slot, Op::Write), Ok(4096));
    }
    assert_eq!(result(2, Op::Read), Ok(10_000 - 8192));
    assert_eq!(result(2, Op::Write), Err(Errno::CANCELED));
    let mut got = vec![0; 8192];
    assert_eq!(pread(&sink, &mut got, 0), Ok(8192));
    assert_eq!(got, bytes[..8192]);
    assert_eq!(sink.metadata().unwrap().len(), 8192);
}

#[test]
fn without_registered_buffers_plain_operations_do_the_same() {
    let (source, sink) = (file_with(b"0123456789"), file_with(b""));
    let Some(mut ring) = ring(1, 64) else { return };
    ring.registered = false;
    ring.read_then_write(0, source.as_fd(), 3, sink.as_fd(), 0, 7).unwrap();
    assert!(all(&mut ring).iter().all(|done| done.result == Ok(7)));
    let mut got = [0; 8];
    assert_eq!(pread(&sink, &mut got, 0), Ok(7));
    assert_eq!(&got[..7], b"3456789");
}

#[test]
fn an_error_of_the_file_is_the_completions() {
    let file = file_with(b"x");
    let read_only = File::open("/dev/null").unwrap();
    let Some(mut ring) = ring(1, 64) else { return };
    ring.write(0, read_only.as_fd(), 0, 0..1).unwrap();
    assert_eq!(ring.wait().unwrap().result, Err(Errno::BADF));
    assert_eq!(ring.read(0, file.as_fd(), 0, 65), Err(Errno::INVAL));
    assert_eq!(ring.read(1, file.as_fd(), 0, 1), Err(Errno::INVAL));
    assert_eq!(ring.buffer(1), None);
    for (depth, buffer, align) in [(0, 1, 1), (5000, 1, 1), (1, 0, 1), (1, 1, 3), (1, 1, 0)] {
        assert_eq!(Uring::new(depth, buffer, align).err(), Some(Errno::INVAL));
    }
}

#[test]
fn dropping_a_ring_with_a_read_that_never_ends_returns() {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let sink = file_with(b"");
    let Some(mut ring) = ring(2, 64) else { return };
    ring.read(0, reader.as_fd(), CURRENT, 64).unwrap();
    ring.submit().unwrap();
    ring.write(1, sink.as_fd(), 0, 0..64).unwrap();
    drop(ring);
    assert_eq!(sink.metadata().unwrap().len(), 0, "what was not submitted is not written");
    write(&writer, b"late").unwrap();
    assert_eq!(rustix::io::ioctl_fionread(&reader), Ok(4));
}

#[test]
fn a_ring_that_is_silent_is_nudged_and_nothing_is_invented() {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let Some(mut ring) = ring(1, 64) else { return };
    if !ring.ring.params().is_feature_ext_arg() {
        eprintln!("skipped: waits of io_uring have no time limit before Linux 5.11");
        return;
    }
    ring.nudges.first = std::time::Duration::from_millis(1);
    ring.nudges.restart();
    ring.read(0, reader.as_fd(), CURRENT, 64).unwrap();
    // Every wait returns EINTR, for one of three reasons: it submitted entries, its time limit
    // passed, or a nudge completed.
    for _ in 0..6 {
        assert_eq!(ring.wait(), Err(Errno::INTR));
        assert_eq!(ring.in_flight(), 1);
    }
    assert!(ring.nudges.patience > ring.nudges.first);
    write(&writer, b"late").unwrap();
    let done = std::iter::repeat_with(|| ring.wait()).find(|done| *done != Err(Errno::INTR));
    assert_eq!(done, Some(Ok(Completion { slot: 0, op: Op::Read, result: Ok(4) })));
    assert_eq!(ring.nudges.patience, ring.nudges.first);
    assert_eq!((ring.in_flight(), ring.wait()), (0, Err(Errno::INVAL)));
}

#[test]
fn a_ring_keeps_a_shared_fd_open() {
    let file = Arc::new(OwnedFd::from(file_with(b"river")));
    let Some(mut ring) = ring(1, 64) else { return };
    ring.read(0, Arc::clone(&file), 0, 64).unwrap();
    assert_eq!(Arc::strong_count(&file), 2);
    drop(file);
    assert_eq!(ring.wait().unwrap().result, Ok(5));
}

#[test]
fn a_ring_moves_to_another_thread() {
    let file = file_with(b"river");
    let Some(mut ring) = ring(1, 64) else { return };
    std::thread::scope(|scope| {
        let fd = file.as_fd();
        scope.spawn(move || {
            ring.read(0, fd, 0, 64).unwrap();
            assert_eq!(ring.wait().unwrap().result, Ok(5));
            assert_eq!(&ring.buffer(0).unwrap()[..5], b"river");
        });
    });
}

#[cfg(feature = "faults")]
#[test]
fn faults_act_like_the_kernels_own() {
    use crate::fault::{Effect, Rule, Script};
    let (source, sink) = (file_with(b"0123456789"), file_with(b""));
    let pair = |read: Option<Effect>, write: Option<Effect>| {
        let mut ring = ring(1, 64)?;
        let rules = [(Call::UringRead, read), (Call::UringWrite, write)]
            .into_iter()
            .filter_map(|(call, effect)| Some(Rule::once(call, 1, effect?)))
            .collect();
        crate::io::ftruncate(&sink, 0).unwrap();
        let outcome = Script::new(rules).run(|| {
            ring.read_then_write(0, source.as_fd(), 0, sink.as_fd(), 0, 10).unwrap();
            ring.submit().unwrap();
            let (first, second) = (ring.wait().unwrap(), ring.wait().unwrap());
            assert_eq!((first.op, second.op, ring.in_flight()), (Op::Read, Op::Write, 0));
            (first.result, second.result)
        });
        Some((outcome.value, sink.metadata().unwrap().len()))
    };
    let canceled = Err(Errno::CANCELED);
    let cases = [
        (None, None, (Ok(10), Ok(10)), 10),
        (Some(Effect::Short(4)), None, (Ok(4), canceled), 0),
        (Some(Effect::Errno(Errno::IO)), None, (Err(Errno::IO), canceled), 0),
        (Some(Effect::Zero), None, (Ok(0), canceled), 0),
        (None, Some(Effect::Short(4)), (Ok(10), Ok(4)), 4),
        (None, Some(Effect::Errno(Errno::NOSPC)), (Ok(10), Err(Errno::NOSPC)), 0),
        (None, Some(Effect::Zero), (Ok(10), Ok(0)), 0),
    ];
    for (read, write, want, len) in cases {
        let Some(got) = pair(read, write) else { return };
        assert_eq!(got, (want, len), "{read:?} {write:?}");
    }
}

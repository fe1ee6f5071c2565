use super::*;
use crate::Cancelled;
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::{
    fs::File,
    io::{Read, Seek, Write},
    os::fd::{AsFd, OwnedFd},
    thread,
};
use thalweg_sys::{io, pipe::Pipe};

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|n| (n * 7 + n / 256) as u8).collect()
}

/// Returns a pipe that supplies `bytes` in pieces, then ends.
fn source(bytes: &[u8]) -> OwnedFd {
    let Pipe { reader, writer, .. } = Pipe::new(0).unwrap();
    let (bytes, mut writer) = (bytes.to_vec(), File::from(writer));
    thread::spawn(move || bytes.chunks(70_000).all(|part| writer.write_all(part).is_ok()));
    reader
}

fn branch(fd: &impl AsFd) -> Branch<'_> {
    Branch { end: End::of(fd.as_fd()).unwrap(), vital: false }
}

fn all_of(file: &mut File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

fn both_ways(check: impl Fn(Multicast)) {
    for share_pages in [false, true] {
        check(Multicast { limit: None, share_pages });
    }
}

#[test]
fn every_sink_gets_every_byte() {
    both_ways(|fan| {
        let bytes = bytes(3_000_001);
        let (mut a, mut b) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let pipe = Pipe::new(0).unwrap();
        let mut reader = File::from(pipe.reader);
        let far = thread::spawn(move || {
            let mut seen = Vec::new();
            reader.read_to_end(&mut seen).unwrap();
            seen
        });
        let from = source(&bytes);
        let writer = pipe.writer;
        let sinks = [branch(&writer), branch(&a), branch(&b)];
        let outcome = fan.run(End::of(from.as_fd()).unwrap(), &sinks, &mut ());
        drop(writer);
        assert!(outcome.error.is_none() && !outcome.stopped, "{outcome:?}");
        assert_eq!((outcome.report.bytes, outcome.report.lost), (bytes.len() as u64, 0));
        let wanted = if fan.share_pages { "tee" } else { LAST_RESORT.info().name };
        assert_eq!(outcome.report.main().unwrap().mechanism, wanted);
        assert!(far.join().unwrap() == bytes && all_of(&mut a) == bytes && all_of(&mut b) == bytes);
    });
}

#[test]
fn a_full_sink_is_left_and_the_others_go_on() {
    both_ways(|fan| {
        let bytes = bytes(400_000);
        let mut good = tempfile::tempfile().unwrap();
        let full = openat(CWD, "/dev/full", OFlags::WRONLY, Mode::empty()).unwrap();
        let from = source(&bytes);
        let sinks = [branch(&full), branch(&good)];
        let outcome = fan.run(End::of(from.as_fd()).unwrap(), &sinks, &mut ());
        let error = outcome.sinks[0].error.expect("/dev/full takes nothing");
        assert_eq!((error.errno, error.moved), (Errno::NOSPC, 0));
        assert!(outcome.sinks[1].error.is_none());
        assert_eq!(outcome.report.bytes, bytes.len() as u64);
        assert_eq!(all_of(&mut good), bytes);
    });
}

#[test]
fn a_vital_sink_that_fails_ends_it() {
    both_ways(|fan| {
        let full = openat(CWD, "/dev/full", OFlags::WRONLY, Mode::empty()).unwrap();
        let good = tempfile::tempfile().unwrap();
        let from = source(&bytes(3_000_000));
        let vital = Branch { vital: true, ..branch(&full) };
        let outcome = fan.run(End::of(from.as_fd()).unwrap(), &[vital, branch(&good)], &mut ());
        assert!(outcome.sinks[0].error.is_some());
        assert!(outcome.sinks[1].bytes < 3_000_000);
    });
}

#[test]
fn an_appending_sink_and_a_pipe_that_does_not_block_are_served() {
    both_ways(|fan| {
        let bytes = bytes(1_000_003);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        std::fs::write(&path, b"before").unwrap();
        let log = File::options().append(true).open(&path).unwrap();
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
        let far = thread::spawn(move || {
            let (mut seen, mut part) = (Vec::new(), vec![0; 10_000]);
            loop {
                match io::read(&reader, &mut part) {
                    Ok(0) => return seen,
                    Ok(got) => seen.extend_from_slice(&part[..got]),
                    Err(_) => drop(io::wait_readable(&reader, None)),
                }
            }
        });
        let from = source(&bytes);
        let sinks = [branch(&log), branch(&writer)];
        let outcome = fan.run(End::of(from.as_fd()).unwrap(), &sinks, &mut ());
        drop(writer);
        assert!(outcome.sinks.iter().all(|sink| sink.error.is_none()), "{outcome:?}");
        assert_eq!(far.join().unwrap(), bytes);
        assert_eq!(std::fs::read(&path).unwrap(), [b"before".as_slice(), &bytes].concat());
    });
}

#[test]
fn a_watcher_can_stop_it_and_the_account_is_true() {
    let good = tempfile::tempfile().unwrap();
    let from = source(&bytes(3_000_000));
    let mut stop = |moved: u64| if moved > 500_000 { Err(Cancelled) } else { Ok(()) };
    let outcome =
        Multicast::default().run(End::of(from.as_fd()).unwrap(), &[branch(&good)], &mut stop);
    assert!(outcome.stopped);
    assert_eq!(outcome.report.bytes + outcome.report.lost, good.metadata().unwrap().len());
}

#[test]
fn short_counts_and_refusals_lose_nothing() {
    use thalweg_sys::fault::{Call, Effect, Rule, Script};
    let effects = [Effect::Short(3), Effect::Errno(Errno::INTR), Effect::Errno(Errno::INVAL)];
    for call in [Call::Tee, Call::Splice, Call::Write, Call::Pwrite, Call::Read] {
        for effect in effects {
            let refused = matches!(effect, Effect::Errno(Errno::INVAL));
            if refused && !matches!(call, Call::Tee | Call::Splice) {
                continue;
            }
            for nth in [1, 2, 5] {
                let bytes = bytes(600_000);
                let (mut a, mut b) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
                let from = source(&bytes);
                let fan = Multicast { limit: None, share_pages: true };
                Script::new(vec![Rule::once(call, nth, effect)]).run(|| {
                    let sinks = [branch(&a), branch(&b)];
                    let outcome = fan.run(End::of(from.as_fd()).unwrap(), &sinks, &mut ());
                    assert!(outcome.error.is_none(), "{call:?} {effect:?}: {outcome:?}");
                    assert!(outcome.sinks.iter().all(|s| s.error.is_none()), "{outcome:?}");
                });
                assert!(all_of(&mut a) == bytes, "{call:?} {effect:?} {nth}");
                assert!(all_of(&mut b) == bytes, "{call:?} {effect:?} {nth}");
            }
        }
    }
}

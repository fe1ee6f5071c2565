//! Unusual endpoints: files that report a wrong size, files opened with `O_APPEND`, full devices,
//! terminals.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Seek, Write},
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
    path::Path,
    time::{Duration, Instant},
};

use rustix::{
    fs::OFlags,
    pty::{OpenptFlags, openpt, ptsname, unlockpt},
    termios::{OptionalActions, tcgetattr, tcsetattr},
};
use thalweg_core::{Cancelled, Driver, Kind, Mechanism, Outcome, Transfer, Tuning};
use thalweg_sys::{
    Errno,
    fault::{Call, CallCounts, Effect, Rule, Script},
};

use crate::{
    case::{folders, mounts, movers, plan_of},
    ends::pattern,
};
use thalweg_testing::skip;

/// Moves everything by this mechanism, even if the mechanism reports that the endpoints do not fit.
/// If the mechanism fails, the last resort moves the bytes.
fn drive(mechanism: &'static dyn Mechanism, source: &impl AsFd, sink: &impl AsFd) -> Outcome {
    let mut transfer = Transfer::between(source, sink).unwrap();
    Driver::default().run(&mut transfer, &plan_of(mechanism, &Tuning::default()), &mut ())
}

fn taking(source: Kind) -> impl Iterator<Item = &'static dyn Mechanism> {
    movers().filter(move |m| m.info().pair(source, Kind::File).is_some())
}

fn content(mut file: &File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn files_that_lie_about_their_size_arrive_whole() {
    for path in ["/proc/cpuinfo", "/proc/filesystems", "/sys/devices/system/cpu/online"] {
        let Ok(expected) = std::fs::read(path) else {
            skip(path, "not here");
            continue;
        };
        for folder in folders() {
            for mechanism in taking(Kind::File) {
                let source = File::open(path).unwrap();
                let sink = tempfile::tempfile_in(&folder).unwrap();
                let outcome = drive(mechanism, &source, &sink);
                let name = mechanism.info().name;
                assert!(outcome.error.is_none(), "{name}: {path}: {outcome:?}");
                let arrived = content(&sink);
                assert_eq!(arrived.len() as u64, outcome.report.bytes, "{name}: {outcome:?}");
                if arrived != expected {
                    // The file contains clock speeds, which differ between two reads. Only the
                    // number of lines is therefore compared.
                    let shape = |bytes: &[u8]| bytes.split(|byte| *byte == b'\n').count();
                    assert_eq!(path, "/proc/cpuinfo", "{name}: {outcome:?}");
                    assert_eq!(shape(&arrived), shape(&expected), "{name}: {outcome:?}");
                }
            }
        }
    }
}

#[test]
fn no_descriptor_does_more_than_it_was_opened_for() {
    let there = b"what was there before";
    for folder in folders() {
        for mechanism in taking(Kind::File) {
            let name = mechanism.info().name;
            let (mut other, path) = tempfile::NamedTempFile::new_in(&folder).unwrap().into_parts();
            other.write_all(there).unwrap();
            let only_read = File::open(&path).unwrap();
            let source = tempfile::tempfile_in(&folder).unwrap();
            (&source).write_all(&pattern(10_000)).unwrap();
            (&source).rewind().unwrap();
            let outcome = drive(mechanism, &source, &only_read);
            assert!(outcome.error.is_some(), "{name} wrote through it: {outcome:?}");
            assert_eq!((outcome.report.bytes, content(&only_read)), (0, there.to_vec()), "{name}");
            let only_written = OpenOptions::new().write(true).open(&path).unwrap();
            let sink = tempfile::tempfile_in(&folder).unwrap();
            let outcome = drive(mechanism, &only_written, &sink);
            assert!(outcome.error.is_some(), "{name} read through it: {outcome:?}");
            assert_eq!((outcome.report.bytes, content(&sink)), (0, Vec::new()), "{name}");
        }
    }
}

fn appending(folder: &Path) -> (tempfile::TempPath, File) {
    let (mut file, path) = tempfile::NamedTempFile::new_in(folder).unwrap().into_parts();
    file.write_all(b"what was there before").unwrap();
    let file = OpenOptions::new().read(true).append(true).open(&path).unwrap();
    (path, file)
}

#[test]
fn a_file_that_appends_gets_everything_at_its_end() {
    let bytes = pattern(300_001);
    let expected = [&b"what was there before"[..], &bytes].concat();
    for folder in folders() {
        let mut source = tempfile::tempfile_in(&folder).unwrap();
        source.write_all(&bytes).unwrap();
        for mechanism in taking(Kind::File) {
            source.rewind().unwrap();
            let (_path, sink) = appending(&folder);
            let outcome = drive(mechanism, &source, &sink);
            let name = mechanism.info().name;
            assert!(outcome.error.is_none(), "{name}: {outcome:?}");
            assert_eq!(outcome.report.bytes, bytes.len() as u64, "{name}: {outcome:?}");
            assert!(content(&sink) == expected, "{name}: {outcome:?}");
        }
        for mechanism in taking(Kind::Pipe) {
            let (reader, mut writer) = std::io::pipe().unwrap();
            let (_path, sink) = appending(&folder);
            let outcome = std::thread::scope(|scope| {
                let bytes = &bytes;
                scope.spawn(move || writer.write_all(bytes).unwrap());
                drive(mechanism, &reader, &sink)
            });
            let name = mechanism.info().name;
            assert!(outcome.error.is_none(), "{name}: {outcome:?}");
            assert!(content(&sink) == expected, "{name}: {outcome:?}");
        }
    }
}

#[test]
fn a_full_device_is_reported_as_full() {
    let mut source = tempfile::tempfile().unwrap();
    source.write_all(&pattern(100_000)).unwrap();
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    for mechanism in taking(Kind::File) {
        source.rewind().unwrap();
        let outcome = drive(mechanism, &source, &full);
        let name = mechanism.info().name;
        let error = outcome.error.unwrap_or_else(|| panic!("{name}: {:?}", outcome.report));
        assert_eq!((error.errno, error.moved), (Errno::NOSPC, 0), "{name}: {error}");
        assert_eq!(outcome.report.lost, 0, "{name}: a file can be read again");
    }
}

#[test]
fn a_disk_that_fills_up_keeps_exactly_what_is_reported() {
    let Some((_, folder)) = mounts().into_iter().find(|(name, _)| name == "small8") else {
        skip("a full disk", "THALWEG_MOUNTS names no small8");
        return;
    };
    // The source does not fit on the small disk, so it is on another one.
    let mut source = tempfile::tempfile().unwrap();
    (0..12).for_each(|_| source.write_all(&pattern(1 << 20)).unwrap());
    for mechanism in taking(Kind::File) {
        source.rewind().unwrap();
        let sink = tempfile::tempfile_in(&folder).unwrap();
        let outcome = drive(mechanism, &source, &sink);
        let name = mechanism.info().name;
        let error = outcome.error.unwrap_or_else(|| panic!("{name}: {:?}", outcome.report));
        assert_eq!(error.errno, Errno::NOSPC, "{name}: {error}");
        let arrived = content(&sink);
        assert_eq!(arrived.len() as u64, outcome.report.bytes, "{name}: {:?}", outcome.report);
        assert!(content(&source).starts_with(&arrived), "{name}: {:?}", outcome.report);
    }
}

#[test]
fn a_block_device_is_written_and_read_like_a_file() {
    let Some((_, device)) = mounts().into_iter().find(|(name, _)| name == "block") else {
        skip("a block device", "THALWEG_MOUNTS names no block");
        return;
    };
    let open = || OpenOptions::new().read(true).write(true).open(&device).unwrap();
    let size = open().seek(std::io::SeekFrom::End(0)).unwrap() as usize;
    let bytes = pattern(1 << 20).repeat(size.div_ceil(1 << 20))[..size].to_vec();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&bytes).unwrap();
    let serves = |source, sink| movers().filter(move |m| m.info().pair(source, sink).is_some());
    let check = |name: &str, outcome: Outcome| {
        assert!(outcome.error.is_none(), "{name}: {outcome:?}");
        assert_eq!(outcome.report.bytes, size as u64, "{name}: {outcome:?}");
        assert!(outcome.report.steps_down.is_empty(), "{name}: {outcome:?}");
    };
    for mechanism in serves(Kind::File, Kind::Device) {
        open().write_all(&vec![0; size]).unwrap();
        file.rewind().unwrap();
        check(mechanism.info().name, drive(mechanism, &file, &open()));
        assert!(content(&open()) == bytes, "{}", mechanism.info().name);
    }
    for mechanism in serves(Kind::Device, Kind::File) {
        let sink = tempfile::tempfile().unwrap();
        check(mechanism.info().name, drive(mechanism, &open(), &sink));
        assert!(content(&sink) == bytes, "{}", mechanism.info().name);
    }
}

/// Returns both sides of a pseudo terminal in raw mode: (the side that types, the side to read).
fn terminal() -> (File, File) {
    let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    unlockpt(&keyboard).unwrap();
    let name = ptsname(&keyboard, Vec::new()).unwrap();
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut screen = OpenOptions::new();
    let screen = screen.read(true).custom_flags(flags.bits() as i32);
    let screen = screen.open(name.to_str().unwrap()).unwrap();
    let mut mode = tcgetattr(&screen).unwrap();
    mode.make_raw();
    tcsetattr(&screen, OptionalActions::Now, &mode).unwrap();
    (keyboard.into(), screen)
}

/// A terminal supplies each byte only once, unlike the other devices.
#[test]
fn a_terminal_loses_nothing_whatever_call_is_refused() {
    let bytes = pattern(50_000);
    let faults = [Errno::INTR, Errno::AGAIN, Errno::INVAL, Errno::IO];
    let faults = faults.into_iter().flat_map(|errno| (1..8).map(move |nth| (errno, nth)));
    let cases = faults.flat_map(|fault| Call::ALL.map(|call| (fault, call)));
    // An error of a call of the last resort ends the transfer, so these calls get no faults.
    let plain = [Call::Read, Call::Write, Call::Pwrite];
    let cases: Vec<_> = cases.filter(|(_, call)| !plain.contains(call)).collect();
    for mechanism in taking(Kind::Device) {
        let mut used = None;
        for ((errno, nth), call) in &cases {
            if used.as_ref().is_some_and(|used: &CallCounts| used[*call] == 0) {
                continue;
            }
            let script = Script::new(vec![
                Rule::once(*call, *nth, Effect::Errno(*errno)),
                // Without this rule, a mechanism would need only one call of splice.
                Rule::always(Call::Splice, Effect::Short(1000)),
            ]);
            let ((mut keyboard, screen), sink) = (terminal(), tempfile::tempfile().unwrap());
            let ran = std::thread::scope(|scope| {
                let bytes = &bytes;
                // The thread returns the terminal, so that it stays open until all bytes are read.
                // Closing it earlier would hang up the other side.
                let typing = scope.spawn(move || {
                    keyboard.write_all(bytes).unwrap();
                    keyboard
                });
                let ran = script.run(|| {
                    let mut transfer = Transfer::between(&screen, &sink).unwrap();
                    transfer.len = Some(bytes.len() as u64);
                    let plan = plan_of(mechanism, &Tuning::default());
                    // If a byte was lost, the transfer would wait for ever. It is then cancelled.
                    let began = Instant::now();
                    let mut watch = |_| {
                        let in_vain = began.elapsed() > Duration::from_secs(120);
                        if in_vain { Err(Cancelled) } else { Ok(()) }
                    };
                    Driver::default().run(&mut transfer, &plan, &mut watch)
                });
                drop(screen);
                drop(typing.join().unwrap());
                ran
            });
            let name = format!("{} {} {errno} at {nth}", mechanism.info().name, call.name());
            assert!(ran.value.error.is_none(), "{name}: {:?}", ran.value);
            assert!(content(&sink) == bytes, "{name}: {:?}", ran.value);
            used.get_or_insert(ran.calls);
        }
    }
}

#[test]
fn a_source_that_loses_its_end_on_the_way_is_a_short_source() {
    for folder in folders() {
        for mechanism in taking(Kind::File) {
            let (before, after) = (64 << 20, 5000);
            let source = tempfile::tempfile_in(&folder).unwrap();
            source.set_len(before).unwrap();
            let sink = tempfile::tempfile_in(&folder).unwrap();
            let mut transfer = Transfer::between(&source, &sink).unwrap();
            let mut watch = |_| {
                source.set_len(after).unwrap();
                Ok(())
            };
            let plan = plan_of(mechanism, &Tuning::default());
            let outcome = Driver::default().run(&mut transfer, &plan, &mut watch);
            let name = mechanism.info().name;
            assert!(outcome.error.is_none(), "{name}: {outcome:?}");
            let length = sink.metadata().unwrap().len();
            assert_eq!(length, outcome.report.bytes, "{name}: {outcome:?}");
        }
    }
}

/// After EINTR, `fdatasync` is repeated. EIO means that written bytes may be lost, so EIO is an
/// error.
#[test]
fn interrupted_storage_is_retried_and_failing_storage_is_reported() {
    let (mut source, sink) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    source.write_all(&pattern(5000)).unwrap();
    source.rewind().unwrap();
    let drive = |rules: Vec<Rule>| {
        Script::new(rules).run(|| {
            let mut transfer = Transfer::between(&source, &sink).unwrap();
            transfer.needs.durable = true;
            let plan = plan_of(thalweg_core::mechanisms::LAST_RESORT, &Tuning::default());
            Driver::default().run(&mut transfer, &plan, &mut ())
        })
    };
    let interrupted = (1..4).map(|nth| Rule::once(Call::Fsync, nth, Effect::Errno(Errno::INTR)));
    let ran = drive(interrupted.collect());
    assert_eq!((ran.value.into_result().unwrap().bytes, ran.calls[Call::Fsync]), (5000, 4));
    let ran = drive(vec![Rule::always(Call::Fsync, Effect::Errno(Errno::IO))]);
    let error = ran.value.error.unwrap();
    assert_eq!((error.errno, error.call, error.moved), (Errno::IO, "fdatasync", 5000));
}

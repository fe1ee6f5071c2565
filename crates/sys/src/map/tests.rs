#![allow(clippy::unwrap_used)]
use super::*;
use crate::io::{ftruncate, pread, pwrite};
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 % 251) as u8 + 1).collect()
}

fn file_with(bytes: &[u8]) -> File {
    let file = tempfile::tempfile().unwrap();
    assert_eq!(pwrite(&file, bytes, 0), Ok(bytes.len()));
    file
}

#[test]
fn an_unaligned_part_of_a_file_is_written_out() {
    let bytes = pattern(3 * page_size());
    let (source, sink) = (file_with(&bytes), file_with(b""));
    let at = page_size() + 77;
    let map = Map::of_file(&source, at as u64, 1000, Access::Read).unwrap();
    assert_eq!((map.len(), map.is_empty(), map.bytes()), (1000, false, None));
    assert_eq!(map.write_to(10..1000, &sink, None), Ok(990));
    assert_eq!(map.write_to(0..10, &sink, Some(990)), Ok(10));
    let mut got = vec![0; 1000];
    assert_eq!(pread(&sink, &mut got, 0), Ok(1000));
    assert_eq!(&got[..990], &bytes[at + 10..at + 1000]);
    assert_eq!(&got[990..], &bytes[at..at + 10]);
    let backwards = Range { start: 5, end: 4 };
    assert_eq!(map.write_to(backwards, &sink, None), Err(Errno::INVAL));
    assert_eq!(map.write_to(0..1001, &sink, None), Err(Errno::INVAL));
    assert_eq!(Map::of_file(&source, 0, 0, Access::Read).err(), Some(Errno::INVAL));
}

#[test]
fn anonymous_memory_is_zeroed_ours_and_written_by_hand() {
    for huge in [false, true] {
        let mut map = Map::anonymous(1 << 16, huge).unwrap();
        assert!(map.bytes().unwrap().iter().all(|byte| *byte == 0));
        map.bytes_mut().unwrap()[9] = 4;
        assert_eq!(map.bytes().unwrap()[9], 4);
        assert!(matches!(map.populate(), Ok(()) | Err(Errno::INVAL)));
        assert!(matches!(map.advise_small(), Ok(()) | Err(Errno::INVAL)));
    }
    assert_eq!(Map::anonymous(0, false).err(), Some(Errno::INVAL));
}

#[test]
fn fenced_memory_ends_where_a_page_begins_and_forgets_what_it_held() {
    for len in [1, 100, page_size(), page_size() + 1] {
        let mut map = Map::fenced(len).unwrap();
        let bytes = map.bytes_mut().unwrap();
        assert_eq!((bytes.len(), bytes.as_ptr_range().end.addr() % page_size()), (len, 0));
        bytes.fill(7);
        let pipe = rustix::pipe::pipe().unwrap();
        let end = map.bytes().unwrap().as_ptr_range().end;
        // SAFETY: the kernel returns EFAULT for an unreadable byte.
        let wrote = unsafe { libc::write(pipe.1.as_raw_fd(), end.cast(), 1) };
        assert_eq!((wrote, crate::io::last_errno()), (-1, Errno::FAULT));
        assert_eq!(map.forget(), Ok(()));
        assert!(map.bytes().unwrap().iter().all(|byte| *byte == 0));
    }
    assert_eq!(Map::fenced(0).err(), Some(Errno::INVAL));
    assert!(Map::fenced(usize::MAX).is_err());
    let file = file_with(&pattern(10));
    assert_eq!(Map::of_file(&file, 0, 10, Access::Read).unwrap().forget(), Err(Errno::INVAL));
}

#[test]
fn a_map_for_writing_changes_the_file_and_one_for_reading_cannot() {
    let (source, sink) = (file_with(b"0123456789"), file_with(&[0; 10]));
    let source = Map::of_file(&source, 0, 10, Access::Read).unwrap();
    let mut map = Map::of_file(&sink, 2, 8, Access::Write).unwrap();
    assert_eq!(copy_between(&source, 6..10, &mut map, 0), Ok(4));
    assert_eq!(copy_between(&source, 0..4, &mut map, 4), Ok(4));
    assert_eq!((map.sync(), map.advise_sequential()), (Ok(()), Ok(())));
    let mut got = [9; 10];
    assert_eq!(pread(&sink, &mut got, 0), Ok(10));
    assert_eq!(&got, b"\0\x0067890123");
    let mut map = Map::of_file(&sink, 0, 8, Access::Read).unwrap();
    let refused = Err(Truncated { copied: 0, errno: Errno::INVAL });
    assert_eq!(copy_between(&source, 0..4, &mut map, 0), refused);
}

#[test]
fn a_file_that_shrank_gives_efault_to_the_kernels_copy() {
    let (source, sink) = (file_with(&pattern(4 * page_size())), file_with(b""));
    let map = Map::of_file(&source, 0, 4 * page_size(), Access::Read).unwrap();
    ftruncate(&source, page_size() as u64).unwrap();
    let page = page_size();
    assert_eq!(map.write_to(2 * page..3 * page, &sink, Some(0)), Err(Errno::FAULT));
    assert_eq!(map.write_to(0..2 * page, &sink, Some(0)), Ok(page));
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_guarded_copy_reports_the_exact_prefix_of_a_shrunken_source() {
    let page = page_size();
    let bytes = pattern(4 * page);
    let source = file_with(&bytes);
    let map = Map::of_file(&source, 100, 4 * page - 100, Access::Read).unwrap();
    let mut memory = Map::anonymous(4 * page, false).unwrap();
    assert_eq!(copy_between(&map, 5..map.len(), &mut memory, 1), Ok(4 * page - 105));
    assert_eq!(&memory.bytes().unwrap()[1..4 * page - 104], &bytes[105..]);

    ftruncate(&source, 2 * page as u64).unwrap();
    let mut memory = Map::anonymous(4 * page, false).unwrap();
    let copied = 2 * page - 105;
    let stopped = Truncated { copied, errno: Errno::FAULT };
    assert_eq!(copy_between(&map, 5..map.len(), &mut memory, 1), Err(stopped));
    assert_eq!(&memory.bytes().unwrap()[1..=copied], &bytes[105..2 * page]);
    assert!(memory.bytes().unwrap()[copied + 1..].iter().all(|byte| *byte == 0));
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_guarded_copy_stops_where_the_sink_has_no_page() {
    let page = page_size();
    let bytes = pattern(2 * page);
    let (source, sink) = (file_with(&bytes), file_with(&vec![0; page]));
    let source = Map::of_file(&source, 0, 2 * page, Access::Read).unwrap();
    let mut map = Map::of_file(&sink, 0, 2 * page, Access::Write).unwrap();
    let stopped = Truncated { copied: page - 9, errno: Errno::FAULT };
    assert_eq!(copy_between(&source, 0..2 * page - 9, &mut map, 9), Err(stopped));
    let mut got = vec![0; page];
    assert_eq!(pread(&sink, &mut got, 0), Ok(page));
    assert_eq!(&got[9..], &bytes[..page - 9]);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_source_truncated_in_mid_copy_never_tears_the_prefix() {
    let len = 256 * page_size();
    let bytes = pattern(len);
    let source = file_with(&bytes);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The pattern contains no zero. A zero is therefore the file's contents after the
            // truncation, not a torn copy.
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                ftruncate(&source, page_size() as u64).unwrap();
                pwrite(&source, &bytes, 0).unwrap();
            }
        });
        let map = Map::of_file(&source, 0, len, Access::Read).unwrap();
        for _ in 0..50 {
            let mut memory = Map::anonymous(len, false).unwrap();
            let copied = match copy_between(&map, 0..len, &mut memory, 0) {
                Ok(copied) => copied,
                Err(stopped) => stopped.copied,
            };
            let got = memory.bytes().unwrap();
            assert!(got[copied..].iter().all(|byte| *byte == 0));
            let good = |(byte, want): (&u8, &u8)| byte == want || *byte == 0;
            assert!(got[..copied].iter().zip(&bytes).all(good));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_bad_range_or_sink_is_refused_before_the_copy() {
    let file = file_with(&pattern(page_size()));
    let source = Map::of_file(&file, 0, 64, Access::Read).unwrap();
    let mut small = Map::anonymous(16, false).unwrap();
    let refused = Err(Truncated { copied: 0, errno: Errno::INVAL });
    assert_eq!(copy_between(&source, 0..65, &mut small, 0), refused);
    assert_eq!(copy_between(&source, 0..17, &mut small, 0), refused);
    assert_eq!(copy_between(&source, 0..1, &mut small, usize::MAX), refused);
    let mut closed = Map::of_file(&file, 0, 64, Access::Read).unwrap();
    assert_eq!(copy_between(&source, 0..1, &mut closed, 0), refused);
}

const CHILD: &str = "THALWEG_SIGBUS_CHILD";

/// Runs as a separate process, started by the test below. It is expected to die.
#[test]
fn sigbus_child() {
    let Ok(how) = std::env::var(CHILD) else { return };
    let file = file_with(&pattern(2 * page_size()));
    let map = Map::of_file(&file, 0, 2 * page_size(), Access::Read).unwrap();
    let mut memory = Map::anonymous(page_size(), false).unwrap();
    let first = copy_between(&map, 0..1, &mut memory, 0);
    assert!(first == Ok(1) || cfg!(not(target_arch = "x86_64")));
    if how == "sent" {
        // SAFETY: raise takes no pointers.
        unsafe { libc::raise(libc::SIGBUS) };
    }
    ftruncate(&file, 0).unwrap();
    // SAFETY: the address is mapped. The test requires that its page is gone.
    let byte = unsafe { std::ptr::read_volatile(map.first()) };
    panic!("read {byte} from a page that is gone");
}

#[test]
fn a_foreign_sigbus_still_kills() {
    for how in ["fault", "sent"] {
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "map::tests::sigbus_child", "--nocapture"])
            .env(CHILD, how)
            .status()
            .unwrap();
        assert_eq!(status.signal(), Some(libc::SIGBUS), "{how}");
    }
}

#[cfg(feature = "faults")]
#[test]
fn faults_reach_map_and_its_calls() {
    use crate::fault::{Effect, Rule, Script};
    let (source, sink) = (file_with(b"0123456789"), file_with(b""));
    let script = Script::new(vec![
        Rule::once(Call::Mmap, 1, Effect::Errno(Errno::NODEV)),
        Rule::always(Call::Pwrite, Effect::Short(3)),
    ]);
    let outcome = script.run(|| {
        assert_eq!(Map::of_file(&source, 0, 10, Access::Read).err(), Some(Errno::NODEV));
        let map = Map::of_file(&source, 0, 10, Access::Read).unwrap();
        assert_eq!(map.write_to(0..10, &sink, Some(0)), Ok(3));
    });
    assert_eq!(outcome.fired, 2);
}

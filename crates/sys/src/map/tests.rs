#![allow(clippy::unwrap_used)]
use super::*;
use crate::io::{ftruncate, pread, pwrite};
use std::fs::File;

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
    let map = Map::of_file(&source, at as u64, 1000).unwrap();
    assert_eq!((map.len(), map.is_empty(), map.bytes()), (1000, false, None));
    assert_eq!(map.write_to(10..1000, &sink, None), Ok(990));
    assert_eq!(map.write_to(0..10, &sink, Some(990)), Ok(10));
    let mut got = vec![0; 1000];
    assert_eq!(pread(&sink, &mut got, 0), Ok(1000));
    assert_eq!(&got[..990], &bytes[at + 10..at + 1000]);
    assert_eq!(&got[990..], &bytes[at..at + 10]);
    let backwards = Range { start: 5, end: 4 };
    assert_eq!(map.advise_sequential(), Ok(()));
    assert_eq!(map.write_to(backwards, &sink, None), Err(Errno::INVAL));
    assert_eq!(map.write_to(0..1001, &sink, None), Err(Errno::INVAL));
    assert_eq!(Map::of_file(&source, 0, 0).err(), Some(Errno::INVAL));
}

#[test]
fn anonymous_memory_is_zeroed_ours_and_written_by_hand() {
    for huge in [false, true] {
        let mut map = Map::anonymous(1 << 16, huge).unwrap();
        assert!(map.bytes().unwrap().iter().all(|byte| *byte == 0));
        map.bytes_mut().unwrap()[9] = 4;
        assert_eq!(map.bytes().unwrap()[9], 4);
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
    assert_eq!(Map::of_file(&file, 0, 10).unwrap().forget(), Err(Errno::INVAL));
}

#[test]
fn a_file_that_shrank_gives_efault_to_the_kernels_copy() {
    let (source, sink) = (file_with(&pattern(4 * page_size())), file_with(b""));
    let map = Map::of_file(&source, 0, 4 * page_size()).unwrap();
    ftruncate(&source, page_size() as u64).unwrap();
    let page = page_size();
    assert_eq!(map.write_to(2 * page..3 * page, &sink, Some(0)), Err(Errno::FAULT));
    assert_eq!(map.write_to(0..2 * page, &sink, Some(0)), Ok(page));
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
        assert_eq!(Map::of_file(&source, 0, 10).err(), Some(Errno::NODEV));
        let map = Map::of_file(&source, 0, 10).unwrap();
        assert_eq!(map.write_to(0..10, &sink, Some(0)), Ok(3));
    });
    assert_eq!(outcome.fired, 2);
}

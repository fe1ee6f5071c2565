//! Moves more than 2 GiB, to find lengths that are truncated to 31 bits. The source is sparse, so it takes little
//! memory until a mechanism maps it.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::FileExt,
    path::Path,
};

use thalweg_core::{Driver, Kind, Transfer, Tuning};

use crate::{
    case::{movers, plan_of},
    ends::{GUARD, pattern},
};
use thalweg_testing::{Sample, skip};

const SIZE: u64 = (2 << 30) + (5 << 20) + 77;

/// The length of the sink before each transfer. The sink keeps these pages of the previous transfer, because freeing
/// and allocating 2 GiB of pages would take most of the test's time. Each transfer still extends the file past 2 GiB.
const KEPT: u64 = (2 << 30) - 4096;

/// Offsets at which the source has data.
const MARKS: [u64; 4] = [0, (1 << 30) + 3, (2 << 30) - 2000, SIZE - 4096];

/// An offset between two marks, where the source has a hole.
const HOLE: u64 = (1 << 30) + (1 << 20) + 5;

/// Overwrites the places that the test checks, so that they contain no bytes of an earlier transfer.
fn estrange(sink: &File) {
    for place in MARKS.into_iter().chain([HOLE]) {
        sink.write_all_at(&[GUARD; 4096], place).unwrap();
    }
    sink.set_len(KEPT).unwrap();
}

fn bytes_at(file: &File, place: u64) -> Vec<u8> {
    let mut bytes = vec![GUARD; 4096];
    file.read_exact_at(&mut bytes, place).unwrap();
    bytes
}

fn sparse(folder: &Path) -> File {
    let file = tempfile::tempfile_in(folder).unwrap();
    file.set_len(SIZE).unwrap();
    for mark in MARKS {
        file.write_all_at(&pattern(4096), mark).unwrap();
    }
    file
}

#[test]
fn more_than_two_gib_arrive_whole() {
    let folder = Path::new("/dev/shm");
    // Space for the sink, and for the source, because a mapping fills the source's holes with pages.
    let room = rustix::fs::statvfs(folder).map_or(0, |fs| fs.f_bavail * fs.f_frsize);
    if room < 2 * SIZE + (256 << 20) {
        return skip("large", "no room for twice 2 GiB in /dev/shm");
    }
    let nowhere = OpenOptions::new().write(true).open("/dev/null").unwrap();
    let (source, file) = (sparse(folder), tempfile::tempfile_in(folder).unwrap());
    for mechanism in Sample::new("large", 3).of(movers()) {
        let info = mechanism.info();
        for (sink, target) in [(Kind::Null, &nowhere), (Kind::File, &file)] {
            if info.pair(Kind::File, sink).is_none() {
                continue;
            }
            estrange(&file);
            let mut transfer = Transfer::between(&source, target).unwrap();
            let plan = plan_of(mechanism, &Tuning::default());
            let outcome = Driver::default().run(&mut transfer, &plan, &mut ());
            assert!(outcome.error.is_none(), "{}: {outcome:?}", info.name);
            assert_eq!(outcome.report.bytes, SIZE, "{}: {outcome:?}", info.name);
            if sink == Kind::Null {
                continue;
            }
            assert_eq!(file.metadata().unwrap().len(), SIZE, "{}", info.name);
            for mark in MARKS {
                let arrived = bytes_at(&file, mark) == pattern(4096);
                assert!(arrived, "{}: at {mark}: {outcome:?}", info.name);
            }
            assert!(bytes_at(&file, HOLE) == [0; 4096], "{}: the hole: {outcome:?}", info.name);
        }
    }
}

//! More than 2 GiB: no length passes through 31 bits. The source is sparse, so most of it is holes.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::FileExt,
    path::Path,
};

use thalweg_core::{Driver, Kind, Transfer, Tuning};

use crate::{
    case::{movers, plan_of},
    ends::pattern,
    skips::skip,
};

const SIZE: u64 = (2 << 30) + (5 << 20) + 77;

/// Where the source has bytes.
const MARKS: [u64; 4] = [0, (1 << 30) + 3, (2 << 30) - 2000, SIZE - 4096];

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
    // For the sink of one mechanism at a time, and the marks of the source.
    let room = rustix::fs::statvfs(folder).map_or(0, |fs| fs.f_bavail * fs.f_frsize);
    let nowhere = OpenOptions::new().write(true).open("/dev/null").unwrap();
    for mechanism in movers() {
        let info = mechanism.info();
        for sink in [Kind::Null, Kind::File] {
            if info.pair(Kind::File, sink).is_none() {
                continue;
            }
            if room < SIZE + (256 << 20) {
                skip(&format!("large {}", info.name), "no room for 2 GiB in /dev/shm");
                continue;
            }
            let source = sparse(folder);
            let file = if sink == Kind::File { tempfile::tempfile_in(folder).ok() } else { None };
            let target = file.as_ref().unwrap_or(&nowhere);
            let mut transfer = Transfer::between(&source, target).unwrap();
            let plan = plan_of(mechanism, &Tuning::default());
            let outcome = Driver::default().run(&mut transfer, &plan, &mut ());
            assert!(outcome.error.is_none(), "{}: {outcome:?}", info.name);
            assert_eq!(outcome.report.bytes, SIZE, "{}: {outcome:?}", info.name);
            let Some(file) = file else { continue };
            assert_eq!(file.metadata().unwrap().len(), SIZE, "{}", info.name);
            for mark in MARKS {
                let mut bytes = vec![0; 4096];
                file.read_exact_at(&mut bytes, mark).unwrap();
                assert!(bytes == pattern(4096), "{}: at {mark}: {outcome:?}", info.name);
            }
        }
    }
}

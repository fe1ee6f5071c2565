//! Plans, tasks and journal lines of a fleet: no input may crash the parsers. Writing what was read must give the same
//! bytes, and no path may lead out of the tree. A worker with such a plan writes nothing outside of its tree.

use std::{fs, path::Path, time::Duration};

use rustix::fs::{MemfdFlags, memfd_create};
use thalweg_sys::io;
use thalweg_tree::{
    CopyOptions, Fsync,
    fleet::{
        Duty, FleetEnd, Member,
        line::{JournalLine, LINE},
        plan::{FleetPlan, FleetTask},
        work,
    },
};
use xxhash_rust::xxh3::xxh3_64;

use crate::snapshot::{expect_names, snapshot};

// Lengths of the parts of a plan, in bytes, and positions in them.
const HEAD: usize = 56;
const TAIL: usize = 32;
const INDEX_LINE: usize = 32;
const ID: usize = 16;
/// The inode number and the time of the surveyed directory.
const SURVEYED: std::ops::Range<usize> = 24..44;

fn expect_inside(task: &FleetTask) {
    let entries = match task {
        FleetTask::Files(files) => &files[..],
        FleetTask::Stretch { entry, .. } => std::slice::from_ref(entry),
    };
    for entry in entries {
        assert!(!entry.folder.starts_with(b"/"));
        let names = entry.folder.split(|byte| *byte == b'/').chain([entry.name.to_bytes()]);
        assert!(names.into_iter().all(|name| name != b".." && name != b"."));
    }
}

/// Runs one input.
pub fn run(bytes: &[u8]) {
    if let Ok(task) = FleetTask::parse(bytes) {
        expect_inside(&task);
        assert_eq!(FleetTask::parse(&task.to_bytes()), Ok(task));
    }
    for line in bytes.chunks(LINE) {
        if let Some(read) = JournalLine::parse(line, 7) {
            assert_eq!(read.to_bytes(7)[..], *line);
        }
    }
    read(bytes);
    if let Some(plan) = sealed(bytes)
        && read(&plan)
    {
        perform(&plan);
    }
}

/// Reads a plan. Returns `true` if it is valid.
fn read(bytes: &[u8]) -> bool {
    let file = memfd_create(c"plan", MemfdFlags::CLOEXEC).expect("memory");
    if io::pwrite(&file, bytes, 0) != Ok(bytes.len()) {
        return false;
    }
    let plan = match FleetPlan::read(file) {
        Ok(plan) => plan,
        Err(error) => {
            drop(error.to_string());
            return false;
        }
    };
    assert!(plan.task(plan.index.len()).is_err());
    for n in 0..plan.index.len().min(64) {
        if let Ok(task) = plan.task(n) {
            expect_inside(&task);
        }
    }
    true
}

/// Corrects the checksums of a plan, so that the parser does not stop at them.
fn sealed(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut plan = bytes.to_vec();
    let tail = plan.len().checked_sub(TAIL).filter(|tail| *tail >= HEAD)?;
    let number =
        |plan: &[u8], at: usize| u64::from_le_bytes(plan[at..at + 8].try_into().expect("8 bytes"));
    put(&mut plan, HEAD - 8, |plan| xxh3_64(&plan[..HEAD - 8]));
    let index = usize::try_from(number(&plan, tail)).unwrap_or(tail).min(tail);
    for line in (index..tail).step_by(INDEX_LINE).filter(|line| line + INDEX_LINE <= tail) {
        let offset = usize::try_from(number(&plan, line)).unwrap_or(usize::MAX);
        let len = number(&plan, line + 8) as u32 as usize;
        let record = offset.checked_add(len).and_then(|end| plan.get(offset..end));
        if let Some(hash) = record.map(xxh3_64) {
            put(&mut plan, line + INDEX_LINE - 8, |_| hash);
        }
    }
    put(&mut plan, tail + 16, |plan| xxh3_64(&plan[index..tail]));
    put(&mut plan, tail + 24, |plan| {
        xxh3_64(&[&plan[tail..tail + 24], &plan[ID..ID + 8]].concat())
    });
    Some(plan)
}

fn put(plan: &mut [u8], at: usize, value: impl FnOnce(&[u8]) -> u64) {
    let value = value(plan);
    plan[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// Lets a worker follow a plan for a small tree.
fn perform(plan: &[u8]) {
    let place = tempfile::tempdir().expect("a directory");
    let place = place.path();
    fs::create_dir_all(place.join("from/a")).expect("a directory");
    for (name, len) in [("b", 3), ("a/c", 0), ("a/d", 200_000)] {
        fs::write(place.join("from").join(name), vec![7; len]).expect("a file");
    }
    let before = snapshot(&place.join("from"));
    does(place, Duty::Plan);
    let written = place.join(".to.thalweg-fleet/plan");
    let own = fs::read(&written).expect("its own plan");
    assert!(read(&own));
    let mut plan = plan.to_vec();
    // A worker ends at once if the plan describes another directory, so the plan gets the identity of this one.
    plan[SURVEYED].copy_from_slice(&own[SURVEYED]);
    fs::write(&written, sealed(&plan).expect("a plan")).expect("a plan");
    if does(place, Duty::All) {
        assert!(place.join("to").is_dir());
    }
    assert_eq!(snapshot(&place.join("from")), before);
    expect_names(place, &["from", "to"], ".to.thalweg");
}

/// Returns `true` if the worker finished the tree.
fn does(place: &Path, duty: Duty) -> bool {
    let member = Member { duty, task_bytes: 64 << 10, ..Member::new(0, 1, Duration::ZERO) };
    let options = CopyOptions { jobs: 1, fsync: Fsync::Never, ..CopyOptions::archive() };
    let worked = work(&place.join("from"), &place.join("to"), &options, &member, &());
    match worked {
        Ok(report) => report.end == FleetEnd::Finished,
        Err(error) => {
            drop(error.to_string());
            false
        }
    }
}

//! Plans, tasks and lines of a journal: no input may crash the parsers. Writing what was read must give the same
//! bytes, and no path may lead out of the tree.

use rustix::fs::{MemfdFlags, memfd_create};
use thalweg_sys::io;
use thalweg_tree::fleet::{
    line::{LINE, JournalLine},
    plan::{FleetPlan, FleetTask},
};

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
    let file = memfd_create(c"plan", MemfdFlags::CLOEXEC).expect("memory");
    if io::pwrite(&file, bytes, 0) != Ok(bytes.len()) {
        return;
    }
    if let Ok(plan) = FleetPlan::read(file) {
        for n in 0..plan.index.len().min(64) {
            if let Ok(task) = plan.task(n) {
                expect_inside(&task);
            }
        }
    }
}

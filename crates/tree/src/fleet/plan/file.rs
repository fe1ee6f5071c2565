//! Reads a plan. The index is read when the plan is opened, and each task when it is needed.

use rustix::fs::fstat;
use std::os::fd::{AsFd, OwnedFd};
use thalweg_sys::io;
use xxhash_rust::xxh3::xxh3_64;

use super::{
    FleetTask, PlanError,
    index::{HEAD, Indexed, LINE, PlanTail, Surveyed, TAIL, parse_head},
};
use crate::identity::size;

/// An open plan.
#[derive(Debug)]
pub struct FleetPlan {
    file: OwnedFd,
    /// The ID of the plan.
    pub id: u64,
    /// The directory that was surveyed.
    pub of: Surveyed,
    /// The index of the tasks.
    pub index: Vec<Indexed>,
}

impl FleetPlan {
    /// Reads head and index, and validates every field.
    pub fn read(file: OwnedFd) -> Result<Self, PlanError> {
        let size = size(&fstat(&file).map_err(PlanError::Read)?);
        let (id, of) = parse_head(&bytes(&file, 0, HEAD)?)?;
        let last = size.checked_sub(TAIL as u64).ok_or(PlanError::Short)?;
        let tail = PlanTail::parse(&bytes(&file, last, TAIL)?, id, size)?;
        let lines = bytes(&file, tail.at, tail.count * LINE)?;
        if xxh3_64(&lines) != tail.hash {
            return Err(PlanError::Sum("index"));
        }
        let index = lines.chunks_exact(LINE).map(|line| Indexed::parse(line, tail.at));
        Ok(Self { index: index.collect::<Result<_, _>>()?, file, id, of })
    }

    /// Reads a task.
    pub fn task(&self, n: usize) -> Result<FleetTask, PlanError> {
        let line = self.index.get(n).ok_or(PlanError::Nonsense("task number out of range"))?;
        let record = bytes(&self.file, line.offset, line.len as usize)?;
        if xxh3_64(&record) != line.hash {
            return Err(PlanError::Sum("task"));
        }
        let task = FleetTask::parse(&record)?;
        if (task.files(), task.bytes()) != (line.files, line.bytes) {
            return Err(PlanError::Nonsense("a task that does not match the index"));
        }
        Ok(task)
    }

    /// Returns the number of bytes of all tasks.
    pub fn bytes(&self) -> u64 {
        self.index.iter().fold(0, |sum, line| sum.saturating_add(line.bytes))
    }
}

/// Reads `len` bytes at an offset. The caller has checked `len` against the size of the file.
fn bytes(file: &OwnedFd, at: u64, len: usize) -> Result<Vec<u8>, PlanError> {
    let mut bytes = vec![0; len];
    let got = io::pread_full(file.as_fd(), &mut bytes, at).map_err(PlanError::Read)?;
    if got < len { Err(PlanError::Short) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::plan::{PlanEntry, PlanWriter, SourceStamp};
    use std::{io::Write, sync::Arc};

    fn task(n: u64) -> FleetTask {
        let seen = SourceStamp { size: n + 1, mtime: (n as i64, 0), ctime: (0, 0) };
        let entry = PlanEntry { folder: Arc::from(&b"a"[..]), name: c"f".to_owned(), seen };
        if n.is_multiple_of(2) {
            FleetTask::Files(vec![entry; 9])
        } else {
            FleetTask::Stretch { file: n, entry, range: 0..n }
        }
    }

    fn written(count: u64) -> OwnedFd {
        let file = OwnedFd::from(tempfile::tempfile().unwrap());
        let of = Surveyed { ino: 5, mtime: (6, 7) };
        let mut writer = PlanWriter::new(file, 77, of);
        (0..count).for_each(|n| assert_eq!(writer.add(&task(n)), Ok(true)));
        writer.end().unwrap()
    }

    #[test]
    fn a_plan_of_many_tasks_comes_back_and_so_does_an_empty_one() {
        for count in [0, 1, 30_000] {
            let plan = FleetPlan::read(written(count)).unwrap();
            assert_eq!((plan.id, plan.index.len(), plan.of.ino), (77, count as usize, 5));
            for n in (0..count).step_by(997) {
                assert_eq!(plan.task(n as usize), Ok(task(n)));
            }
            assert!(plan.task(count as usize).is_err());
        }
    }

    #[test]
    fn a_plan_with_any_other_byte_is_none() {
        let mut whole = vec![0; 4096];
        let len = io::pread_full(written(3).as_fd(), &mut whole, 0).unwrap();
        whole.truncate(len);
        let read = |bytes: &[u8]| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(bytes).unwrap();
            let plan = FleetPlan::read(file.into())?;
            (0..plan.index.len()).map(|n| plan.task(n)).collect::<Result<Vec<_>, _>>()
        };
        assert_eq!(read(&whole).unwrap().len(), 3);
        for at in 0..len {
            let mut other = whole.clone();
            other[at] ^= 1;
            assert!(read(&other).is_err(), "byte {at}");
            assert!(read(&whole[..at]).is_err(), "cut at {at}");
        }
        let mut newer = whole.clone();
        newer[8] = 2;
        assert_eq!(read(&newer), Err(PlanError::Version(2)));
    }
}

//! Writes a plan while its tasks are found. Only one index line per task stays in memory.

use std::os::fd::{AsFd, OwnedFd};
use thalweg_sys::{Errno, io};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    FleetTask,
    index::{Indexed, MOST_TASKS, PlanTail, Surveyed, head},
};

/// Size of the write buffer.
const BUFFER: usize = 1 << 20;

/// An incomplete plan.
pub(crate) struct PlanWriter {
    file: OwnedFd,
    id: u64,
    at: u64,
    buffer: Vec<u8>,
    index: Vec<Indexed>,
}

impl PlanWriter {
    /// Starts a plan in an empty file.
    pub fn new(file: OwnedFd, id: u64, of: Surveyed) -> Self {
        Self { file, id, at: 0, buffer: head(id, of), index: Vec::new() }
    }

    /// Adds a task. Returns `false` if the maximum number of tasks is reached.
    pub fn add(&mut self, task: &FleetTask) -> Result<bool, Errno> {
        if self.index.len() == MOST_TASKS {
            return Ok(false);
        }
        let record = task.to_bytes();
        self.index.push(Indexed {
            offset: self.at + self.buffer.len() as u64,
            len: record.len() as u32,
            files: task.files(),
            bytes: task.bytes(),
            hash: xxh3_64(&record),
        });
        self.buffer.extend(record);
        if self.buffer.len() >= BUFFER {
            self.flush()?;
        }
        Ok(true)
    }

    /// Writes the index and the tail, and returns the complete file.
    pub fn end(mut self) -> Result<OwnedFd, Errno> {
        let at = self.at + self.buffer.len() as u64;
        let mut index = Vec::new();
        self.index.iter().for_each(|line| line.write(&mut index));
        let tail = PlanTail { at, count: self.index.len(), hash: xxh3_64(&index) };
        self.buffer.extend(index);
        self.buffer.extend(tail.bytes(self.id));
        self.flush()?;
        // Network file systems report a full disk when a file is closed.
        io::flush(self.file.as_fd())?;
        Ok(self.file)
    }

    fn flush(&mut self) -> Result<(), Errno> {
        let mut rest = &self.buffer[..];
        while !rest.is_empty() {
            match io::pwrite(&self.file, rest, self.at) {
                Ok(0) => return Err(Errno::IO),
                Ok(put) => {
                    rest = &rest[put..];
                    self.at += put as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        self.buffer.clear();
        Ok(())
    }
}

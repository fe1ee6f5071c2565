//! Writes a plan as its tasks are found: what stays in memory is a line of the index for each.

use std::os::fd::{AsFd, OwnedFd};
use thalweg_sys::{Errno, io};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    Task,
    index::{Indexed, MOST_TASKS, Surveyed, Tail, head},
};

/// Written at a time.
const BUFFER: usize = 1 << 20;

/// A plan that is not whole yet.
pub(crate) struct PlanWriter {
    file: OwnedFd,
    id: u64,
    at: u64,
    buffer: Vec<u8>,
    index: Vec<Indexed>,
}

impl PlanWriter {
    /// Into an empty file.
    pub fn new(file: OwnedFd, id: u64, of: Surveyed) -> Self {
        Self { file, id, at: 0, buffer: head(id, of), index: Vec::new() }
    }

    /// Adds a task; false if there is no room for more.
    pub fn add(&mut self, task: &Task) -> Result<bool, Errno> {
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

    /// Completes the file.
    pub fn end(mut self) -> Result<OwnedFd, Errno> {
        let at = self.at + self.buffer.len() as u64;
        let mut index = Vec::new();
        self.index.iter().for_each(|line| line.write(&mut index));
        let tail = Tail { at, count: self.index.len(), hash: xxh3_64(&index) };
        self.buffer.extend(index);
        self.buffer.extend(tail.bytes(self.id));
        self.flush()?;
        // Servers tell of a full disk when a file is closed.
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

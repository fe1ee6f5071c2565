//! The index at the end of a plan, with the position and size of each task, and the head and tail that locate it.

use rustix::fs::Stat;
use xxhash_rust::xxh3::xxh3_64;

use super::{
    PlanError,
    bytes::PlanBytes,
    task::{MOST_FILES, MOST_RECORD},
};
use crate::identity::mtime;

/// Maximum number of tasks. A worker holds the index of all tasks in memory.
pub const MOST_TASKS: usize = 1 << 23;

/// The first bytes of a plan.
pub(super) const MAGIC: &[u8; 8] = b"thwgplan";
pub(super) const VERSION: u32 = 1;
/// Length in bytes of the head, of an index line, and of the tail.
pub(super) const HEAD: usize = 56;
pub(super) const LINE: usize = 32;
pub(super) const TAIL: usize = 32;

/// The index entry of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Indexed {
    /// Offset of its record.
    pub offset: u64,
    /// Length of the record in bytes.
    pub len: u32,
    /// Number of files; 0 for a range of a large file.
    pub files: u32,
    /// Number of bytes to move.
    pub bytes: u64,
    /// XXH3 of the record.
    pub hash: u64,
}

/// The tail of a plan, which locates the index.
pub(super) struct PlanTail {
    pub at: u64,
    pub count: usize,
    pub hash: u64,
}

/// The surveyed directory. It is identified by values that are equal on all machines with most file systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Surveyed {
    /// Its inode number.
    pub ino: u64,
    /// Its modification time: seconds, nanoseconds.
    pub mtime: (i64, u32),
}

impl Surveyed {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self { ino: stat.st_ino, mtime: mtime(stat) }
    }

    /// Returns `true` if this may be the surveyed directory. One equal value is enough: a change of the directory
    /// changes its time, and some file systems assign other inode numbers on each machine. If the source is unmounted
    /// or wrong, both values differ.
    pub fn may_be(self, other: Self) -> bool {
        self.ino == other.ino || self.mtime == other.mtime
    }
}

pub(super) fn head(id: u64, of: Surveyed) -> Vec<u8> {
    let mut head = MAGIC.to_vec();
    head.extend(VERSION.to_le_bytes());
    head.extend(0_u32.to_le_bytes());
    head.extend(id.to_le_bytes());
    head.extend(of.ino.to_le_bytes());
    head.extend(of.mtime.0.to_le_bytes());
    head.extend(of.mtime.1.to_le_bytes());
    head.extend(0_u32.to_le_bytes());
    head.extend(xxh3_64(&head).to_le_bytes());
    head
}

/// Returns the ID of a plan, which its journals contain, and the surveyed directory.
pub(super) fn parse_head(bytes: &[u8]) -> Result<(u64, Surveyed), PlanError> {
    let mut left = PlanBytes(bytes);
    if left.take(MAGIC.len())? != MAGIC {
        return Err(PlanError::Magic);
    }
    let version = left.u32()?;
    if version != VERSION {
        return Err(PlanError::Version(version));
    }
    if left.u32()? != 0 {
        return Err(PlanError::Nonsense("an unknown flag"));
    }
    let (id, ino, mtime) = (left.u64()?, left.u64()?, (left.i64()?, left.u32()?));
    if left.u32()? != 0 || mtime.1 >= 1_000_000_000 {
        return Err(PlanError::Nonsense("nanoseconds out of range"));
    }
    let sum = left.u64()?;
    left.end()?;
    if sum != xxh3_64(&bytes[..HEAD - 8]) {
        return Err(PlanError::Sum("head"));
    }
    Ok((id, Surveyed { ino, mtime }))
}

impl PlanTail {
    pub fn bytes(&self, id: u64) -> Vec<u8> {
        let mut tail = self.at.to_le_bytes().to_vec();
        tail.extend((self.count as u64).to_le_bytes());
        tail.extend(self.hash.to_le_bytes());
        let sum = xxh3_64(&[&tail[..], &id.to_le_bytes()].concat());
        tail.extend(sum.to_le_bytes());
        tail
    }

    /// Parses the last bytes of a plan of `size` bytes.
    pub fn parse(bytes: &[u8], id: u64, size: u64) -> Result<Self, PlanError> {
        let mut left = PlanBytes(bytes);
        let (at, count, hash, sum) = (left.u64()?, left.u64()?, left.u64()?, left.u64()?);
        left.end()?;
        if sum != xxh3_64(&[&bytes[..TAIL - 8], &id.to_le_bytes()].concat()) {
            return Err(PlanError::Sum("tail"));
        }
        let count = usize::try_from(count).ok().filter(|count| *count <= MOST_TASKS);
        let count = count.ok_or(PlanError::Nonsense("too many tasks"))?;
        let end = at.checked_add((count * LINE + TAIL) as u64);
        if at < HEAD as u64 || end != Some(size) {
            return Err(PlanError::Nonsense("wrong offset of the index"));
        }
        Ok(Self { at, count, hash })
    }
}

impl Indexed {
    pub(super) fn write(&self, into: &mut Vec<u8>) {
        into.extend(self.offset.to_le_bytes());
        into.extend(self.len.to_le_bytes());
        into.extend(self.files.to_le_bytes());
        into.extend(self.bytes.to_le_bytes());
        into.extend(self.hash.to_le_bytes());
    }

    /// Parses an index line. Records must be between the head and `end`.
    pub(super) fn parse(line: &[u8], end: u64) -> Result<Self, PlanError> {
        let mut left = PlanBytes(line);
        let (offset, len, files) = (left.u64()?, left.u32()?, left.u32()?);
        let (bytes, hash) = (left.u64()?, left.u64()?);
        left.end()?;
        let ends = offset.checked_add(len.into());
        let is_inside = offset >= HEAD as u64 && ends.is_some_and(|ends| ends <= end);
        if !is_inside || len as usize > MOST_RECORD || files > MOST_FILES {
            return Err(PlanError::Nonsense("task offset out of range"));
        }
        if i64::try_from(bytes).is_err() {
            return Err(PlanError::Nonsense("task length out of range"));
        }
        Ok(Self { offset, len, files, bytes, hash })
    }
}

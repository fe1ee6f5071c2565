//! The record of a task in a plan.

use rustix::fs::Stat;
use std::{ffi::CString, ops::Range, sync::Arc};
use thalweg_core::atomic_file::name::is_reserved;

use super::{PlanError, bytes::PlanBytes};
use crate::identity::{ctime, mtime, size};

/// Maximum number of files in one task.
pub const MOST_FILES: u32 = 1 << 16;
/// Maximum length of a directory path in a plan. The finisher copies files with longer directory paths.
pub const LONGEST_FOLDER: usize = u16::MAX as usize - 1;
/// Maximum length of a record.
pub const MOST_RECORD: usize = 64 << 20;

const LONGEST_NAME: usize = 255;
const FILES: u8 = 1;
const STRETCH: u8 = 2;
/// Value in place of a path length, if the directory is that of the previous file.
const SAME: u16 = u16::MAX;

/// The state of a source file at the time of the survey. The file has changed if any value differs later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceStamp {
    /// Size in bytes.
    pub size: u64,
    /// Modification time: seconds, nanoseconds.
    pub mtime: (i64, u32),
    /// Change time: seconds, nanoseconds.
    pub ctime: (i64, u32),
}

/// A file of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanEntry {
    /// The path of its directory relative to the source; empty for the source itself.
    pub folder: Arc<[u8]>,
    /// Its name in the directory.
    pub name: CString,
    /// Its attributes at the time of the survey.
    pub seen: SourceStamp,
}

/// A unit of work. Repeating it, or doing it on two workers concurrently, is harmless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FleetTask {
    /// Whole files.
    Files(Vec<PlanEntry>),
    /// A range of a large file.
    Stretch {
        /// The number of the file, which determines the name of its partial file.
        file: u64,
        /// The file.
        entry: PlanEntry,
        /// The range in bytes.
        range: Range<u64>,
    },
}

impl SourceStamp {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self { size: size(stat), mtime: mtime(stat), ctime: ctime(stat) }
    }
}

impl FleetTask {
    /// Returns the number of whole files in the task.
    pub fn files(&self) -> u32 {
        match self {
            Self::Files(files) => files.len() as u32,
            Self::Stretch { .. } => 0,
        }
    }

    /// Returns the number of bytes to move.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Files(files) => {
                files.iter().fold(0, |sum, file| sum.saturating_add(file.seen.size))
            }
            Self::Stretch { range, .. } => range.end - range.start,
        }
    }

    /// Returns the record for the plan.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut into = Vec::new();
        match self {
            Self::Files(files) => {
                into.push(FILES);
                into.extend((files.len() as u32).to_le_bytes());
                let mut folder = None;
                for file in files {
                    write_entry(&mut into, file, folder == Some(&file.folder));
                    folder = Some(&file.folder);
                }
            }
            Self::Stretch { file, entry, range } => {
                into.push(STRETCH);
                into.extend(file.to_le_bytes());
                write_entry(&mut into, entry, false);
                into.extend(range.start.to_le_bytes());
                into.extend(range.end.to_le_bytes());
            }
        }
        into
    }

    /// Parses a record and validates every field: the paths must stay inside the source.
    pub fn parse(record: &[u8]) -> Result<Self, PlanError> {
        let mut left = PlanBytes(record);
        let task = match left.u8()? {
            FILES => {
                let count = left.u32()?;
                if count == 0 || count > MOST_FILES {
                    return Err(PlanError::Nonsense("invalid number of files in a task"));
                }
                let mut files: Vec<PlanEntry> = Vec::new();
                for _ in 0..count {
                    files.push(entry(&mut left, files.last())?);
                }
                Self::Files(files)
            }
            STRETCH => {
                let file = left.u64()?;
                let entry = entry(&mut left, None)?;
                let range = left.u64()?..left.u64()?;
                if range.start >= range.end || range.end > entry.seen.size {
                    return Err(PlanError::Nonsense("a range outside of its file"));
                }
                Self::Stretch { file, entry, range }
            }
            _ => return Err(PlanError::Nonsense("unknown task type")),
        };
        left.end()?;
        Ok(task)
    }
}

fn write_entry(into: &mut Vec<u8>, entry: &PlanEntry, is_same_folder: bool) {
    if is_same_folder {
        into.extend(SAME.to_le_bytes());
    } else {
        into.extend((entry.folder.len() as u16).to_le_bytes());
        into.extend_from_slice(&entry.folder);
    }
    into.push(entry.name.count_bytes() as u8);
    into.extend_from_slice(entry.name.to_bytes());
    into.extend(entry.seen.size.to_le_bytes());
    for (seconds, nanoseconds) in [entry.seen.mtime, entry.seen.ctime] {
        into.extend(seconds.to_le_bytes());
        into.extend(nanoseconds.to_le_bytes());
    }
}

fn entry(left: &mut PlanBytes<'_>, before: Option<&PlanEntry>) -> Result<PlanEntry, PlanError> {
    let folder = match left.u16()? {
        SAME => {
            let before =
                before.ok_or(PlanError::Nonsense("the first file of a task has no directory"))?;
            Arc::clone(&before.folder)
        }
        len => {
            let folder = left.take(len.into())?;
            if !folder.is_empty() {
                folder.split(|byte| *byte == b'/').try_for_each(|name| check(name).map(drop))?;
            }
            Arc::from(folder)
        }
    };
    let len = left.u8()?;
    let name = check(left.take(len.into())?)?;
    let size = left.u64()?;
    if i64::try_from(size).is_err() {
        return Err(PlanError::Nonsense("file size out of range"));
    }
    let mut time = || {
        let (seconds, nanoseconds) = (left.i64()?, left.u32()?);
        if nanoseconds >= 1_000_000_000 {
            return Err(PlanError::Nonsense("nanoseconds out of range"));
        }
        Ok((seconds, nanoseconds))
    };
    let (mtime, ctime) = (time()?, time()?);
    Ok(PlanEntry { folder, name, seen: SourceStamp { size, mtime, ctime } })
}

/// Checks one name of a path: it must not be `.` or `..`, contain a slash, or be reserved for files of this program.
fn check(name: &[u8]) -> Result<CString, PlanError> {
    let is_plain = !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/');
    let name = CString::new(name).ok().filter(|_| is_plain && name.len() <= LONGEST_NAME);
    name.filter(|name| !is_reserved(name))
        .ok_or(PlanError::Nonsense("a path that is invalid or leaves the tree"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(folder: &str, name: &str) -> PlanEntry {
        let seen = SourceStamp { size: 7, mtime: (-1, 999_999_999), ctime: (i64::MAX, 0) };
        PlanEntry { folder: Arc::from(folder.as_bytes()), name: CString::new(name).unwrap(), seen }
    }

    #[test]
    fn tasks_come_back_as_they_were_written() {
        let folder = "a/".repeat(20_000) + "b";
        let files = vec![file("", "x"), file("", "y"), file(&folder, "z"), file("a", "\u{ff}\n")];
        let entry =
            PlanEntry { seen: SourceStamp { size: 100, ..files[0].seen }, ..file("a/b", "big") };
        for task in [FleetTask::Files(files), FleetTask::Stretch { file: 3, entry, range: 64..100 }]
        {
            let bytes = task.to_bytes();
            assert_eq!(FleetTask::parse(&bytes), Ok(task));
            for cut in 0..bytes.len() {
                assert!(FleetTask::parse(&bytes[..cut]).is_err());
            }
            assert!(FleetTask::parse(&[&bytes[..], &[0]].concat()).is_err());
        }
    }

    #[test]
    fn paths_that_lead_out_of_the_tree_are_no_paths() {
        for (folder, name) in [
            ("/a", "x"),
            ("a/", "x"),
            ("a//b", "x"),
            ("..", "x"),
            ("a/../b", "x"),
            (".", "x"),
            ("a\0b", "x"),
            ("a", ""),
            ("a", ".."),
            ("a", "."),
            ("a", "b/c"),
            (".a.thalweg-fleet", "x"),
            ("a", ".b.thalweg-part"),
        ] {
            let task = FleetTask::Files(vec![file(folder, name)]);
            assert!(FleetTask::parse(&task.to_bytes()).is_err(), "{folder:?} {name:?}");
        }
        let long = "x".repeat(256);
        // A length of 256 does not fit the length field. The parser therefore reads a different record, and rejects it.
        assert!(FleetTask::parse(&FleetTask::Files(vec![file("", &long)]).to_bytes()).is_err());
    }

    #[test]
    fn numbers_that_make_no_sense_are_refused() {
        let seen = SourceStamp { size: 10, mtime: (0, 0), ctime: (0, 0) };
        let of = |seen, range| FleetTask::Stretch {
            file: 0,
            entry: PlanEntry { seen, ..file("", "x") },
            range,
        };
        for task in [
            of(seen, 5..5),
            of(seen, 0..11),
            of(SourceStamp { size: u64::MAX, ..seen }, 0..1),
            of(SourceStamp { mtime: (0, 1_000_000_000), ..seen }, 0..1),
            FleetTask::Files(Vec::new()),
        ] {
            assert!(FleetTask::parse(&task.to_bytes()).is_err(), "{task:?}");
        }
        assert!(FleetTask::parse(&[9]).is_err());
    }
}

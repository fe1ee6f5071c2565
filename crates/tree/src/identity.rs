//! Identifies files and detects changes.

use rustix::fs::{FileType, Stat};

pub(crate) use thalweg_core::{atomic_file::lock::Id, changed::changed};

/// Returns the type of a file.
pub(crate) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Returns the size of a file; 0 if it is negative.
pub(crate) fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Returns the modification time in a comparable form.
pub(crate) fn mtime(stat: &Stat) -> (i64, u32) {
    (stat.st_mtime, stat.st_mtime_nsec as u32)
}

/// Returns the change time in a comparable form.
pub(crate) fn ctime(stat: &Stat) -> (i64, u32) {
    (stat.st_ctime, stat.st_ctime_nsec as u32)
}

//! Which file it is, and whether it is still as it was.

use rustix::fs::{FileType, Stat};

pub(crate) use thalweg_core::{atomic_file::lock::Id, changed::changed};

/// The type of a file.
pub(crate) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// The size, as far as it is one.
pub(crate) fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Modification time as one number that can be compared.
pub(crate) fn mtime(stat: &Stat) -> (i64, u64) {
    (stat.st_mtime, stat.st_mtime_nsec)
}

/// Time of the last change of anything, likewise.
pub(crate) fn ctime(stat: &Stat) -> (i64, u64) {
    (stat.st_ctime, stat.st_ctime_nsec)
}

//! Files that the sender has open go over the link as descriptors, and the receiver moves the bytes by
//! a way of its own: by a clone, or as any copy between two files. Both have to trust each other.
//! Where it cannot be, the bytes go as those of any file, and the reason is kept.

use rustix::fs::{FileType, OFlags, Stat, fcntl_getfl, fstat};
use std::os::fd::BorrowedFd;

/// What the receiver moved from files that the sender had open; no checksum was compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FromOpen {
    /// Files.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// What moved the last of them.
    pub by: Option<String>,
}

impl FromOpen {
    pub(in crate::bulk::files) fn add(&mut self, bytes: u64, by: String) {
        self.files += 1;
        self.bytes += bytes;
        self.by = Some(by);
    }
}

/// Why a file was not moved from an open one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotMoved {
    /// It cannot be, and nothing of it was: the bytes are wanted.
    Refused(String),
    /// It cannot be taken at all.
    Failed(String),
    /// The watcher wanted no more.
    Stopped,
}

/// What is recorded where the bytes went instead.
pub(super) const WAY: &str = "open file";
/// A file of either side's as it is now: a regular one, open for reading only.
pub(super) fn looked_at(file: BorrowedFd<'_>) -> Result<Stat, String> {
    let flags = fcntl_getfl(file).map_err(|errno| format!("fcntl: {errno}"))?;
    let stat = fstat(file).map_err(|errno| format!("fstat: {errno}"))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err("it is no regular file".to_owned());
    }
    if flags & OFlags::RWMODE != OFlags::RDONLY || flags.contains(OFlags::PATH) {
        return Err("it is not open for reading only".to_owned());
    }
    Ok(stat)
}

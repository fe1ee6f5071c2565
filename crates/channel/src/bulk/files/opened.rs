//! Passes the sender's open files over the link, as descriptors. The receiver copies the bytes itself, like any copy
//! between two files (by cloning, if possible). Both sides must trust each other. Otherwise the sender sends the bytes
//! and records the reason.

use rustix::fs::{FileType, OFlags, Stat, fcntl_getfl, fstat};
use std::os::fd::BorrowedFd;

/// Data that the receiver copied from the sender's open files. No checksums were compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FromOpen {
    /// Number of files.
    pub files: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Name of the mechanism that copied the last of these files.
    pub by: Option<String>,
}

impl FromOpen {
    pub(in crate::bulk::files) fn add(&mut self, bytes: u64, by: String) {
        self.files += 1;
        self.bytes += bytes;
        self.by = Some(by);
    }
}

/// Reason why the receiver did not copy an open file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotMoved {
    /// The copy is not possible. No bytes were copied, so the sender must send them.
    Refused(String),
    /// The file cannot be received at all.
    Failed(String),
    /// The progress callback requested to stop.
    Stopped,
}

/// Name of this method in the list of rejected mechanisms.
pub(super) const WAY: &str = "open file";
/// Checks that the file is a regular file, opened for reading only. Returns its current metadata.
pub(super) fn looked_at(file: BorrowedFd<'_>) -> Result<Stat, String> {
    let flags = fcntl_getfl(file).map_err(|errno| format!("fcntl: {errno}"))?;
    let stat = fstat(file).map_err(|errno| format!("fstat: {errno}"))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err("not a regular file".to_owned());
    }
    if flags & OFlags::RWMODE != OFlags::RDONLY || flags.contains(OFlags::PATH) {
        return Err("not opened read-only".to_owned());
    }
    Ok(stat)
}

//! The state file in the destination, which records the file system of the source.
//!
//! Other users may be able to write in the destination. The file is therefore used only if it is a small regular file
//! of this user. Its text is only compared and never printed.

use rustix::fs::{
    FileType, Mode, OFlags, Stat, Timestamps, fstat, fstatfs, fstatvfs, futimens, openat,
};
use std::{
    ffi::CStr,
    os::fd::{AsFd, BorrowedFd},
};
use thalweg_core::atomic_file::AtomicFile;
use thalweg_sys::io;

use crate::{
    copy::attributes::times,
    error::{Attempt, CopyFailure, at_sink},
    identity::kind,
    names::STATE_FILE,
};

/// First line of the file.
const HEAD: &str = "thalweg sync 1\n";
/// Largest state file, in bytes.
const LARGEST: usize = 4096;
/// Longest identity that another machine may send, in bytes.
const LONGEST_IDENTITY: usize = 64;

/// Returns `true` for the name of a state file. Syncs do not copy or delete such files.
pub fn is_state_file(name: &[u8]) -> bool {
    name == STATE_FILE.to_bytes()
}

/// Returns a text that identifies the file system of an open directory and is equal in every run.
pub fn file_system_of(directory: BorrowedFd<'_>) -> Option<String> {
    let (fs, whole) = (fstatfs(directory).ok()?, fstatvfs(directory).ok()?);
    // The identity of an ext4, XFS or Btrfs file system is derived from its UUID. Device numbers may change at reboot.
    Some(format!("{:x}-{:x}", fs.f_type, whole.f_fsid))
}

/// Returns `true` if a text that another machine sent has the form of an identity: it is short, and consists of
/// letters, digits and `-`.
pub fn may_be_identity(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    !text.is_empty() && text.len() <= LONGEST_IDENTITY && text.bytes().all(is_plain)
}

/// Returns the identity that the last run recorded; `None` without a trustworthy record.
pub(super) fn recorded(destination: BorrowedFd<'_>) -> Option<String> {
    let (stat, identity) = read_record(destination)?;
    let is_ours = stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & 0o022 == 0;
    is_ours.then_some(identity)
}

/// Returns `true` if the directory has a state file, of whatever user.
pub(super) fn has_record(directory: BorrowedFd<'_>) -> bool {
    read_record(directory).is_some()
}

/// Returns the identity in a state file, and the attributes of the file.
fn read_record(directory: BorrowedFd<'_>) -> Option<(Stat, String)> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = openat(directory, STATE_FILE, flags, Mode::empty()).ok()?;
    let stat = fstat(&fd).ok()?;
    if kind(&stat) != FileType::RegularFile || stat.st_size > LARGEST as i64 {
        return None;
    }
    let mut bytes = [0; LARGEST];
    let len = io::read(&fd, &mut bytes).ok()?;
    let text = std::str::from_utf8(&bytes[..len]).ok()?;
    let identity = text.strip_prefix(HEAD)?.strip_prefix("source ")?;
    Some((stat, identity.lines().next()?.to_owned()))
}

/// Records the identity of the source. The times of the destination stay unchanged.
pub(super) fn record(destination: BorrowedFd<'_>, identity: &str) -> Attempt<()> {
    if recorded(destination).as_deref() == Some(identity) {
        return Ok(());
    }
    let before = fstat(destination).map_err(at_sink("fstat"))?;
    let name: &CStr = STATE_FILE;
    let mut file = AtomicFile::create(destination, name, 0o600)?;
    let text = format!("{HEAD}source {identity}\n");
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let written = io::write(&file.fd, rest).map_err(at_sink("write"))?;
        if written == 0 {
            return Err(CopyFailure::Sink("write", thalweg_sys::Errno::IO, 0));
        }
        rest = &rest[written..];
    }
    file.publish(false)?;
    let kept: Timestamps = times(&before);
    futimens(destination.as_fd(), &kept).map_err(at_sink("utimensat"))
}

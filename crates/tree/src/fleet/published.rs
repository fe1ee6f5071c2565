//! Examines a destination that exists already: a tree that another worker has published, or something else.

use rustix::fs::{AtFlags, CWD, FileType, Mode, fstatfs, openat, stat, statat};
use std::{
    ffi::CStr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};
use thalweg_core::atomic_file::{CallFailed, failed, name::is_reserved, sync_directory};
use thalweg_sys::Errno;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    Refusal, evidence,
    fs::list::{DIRECTORY, each_entry, listing_buffer},
    identity::kind,
    times,
};

/// The entry that has the name of the destination.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum There {
    Nothing,
    /// A directory with the modification time and the names of the source, which only a copy can have.
    Copy,
    /// Like `Copy`, but last changed before this boot. A power failure may have lost data of its files, although names
    /// and times are intact.
    EarlierCopy,
    SomethingElse,
}

impl There {
    /// Returns the reason why a fleet cannot create a tree there.
    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Nothing | Self::Copy => None,
            Self::EarlierCopy => Some(Refusal::NotSince),
            Self::SomethingElse => Some(Refusal::NotNew),
        }
    }
}

pub(crate) fn there(above: BorrowedFd<'_>, name: &CStr, source: &Path) -> Result<There, Errno> {
    let there = match statat(above, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(there) => there,
        Err(Errno::NOENT) => return Ok(There::Nothing),
        Err(errno) => return Err(errno),
    };
    // Two directories may have equal times by chance, within one clock tick, so the names are compared too.
    let is_copy = kind(&there) == FileType::Directory
        && times::is_same(&there, &stat(source)?, || fstatfs(above))
        && names(openat(above, name, DIRECTORY, Mode::empty())?)?
            == names(openat(CWD, source, DIRECTORY, Mode::empty())?)?;
    Ok(match is_copy {
        true if evidence::is_from_before_this_boot(&there) => There::EarlierCopy,
        true => There::Copy,
        false => There::SomethingElse,
    })
}

/// Returns the number of names in a directory that a copy would include, and the sum of their hashes. The sum does not
/// depend on the order of the names.
fn names(folder: OwnedFd) -> Result<(u64, u64), Errno> {
    let (mut count, mut sum) = (0, 0_u64);
    each_entry(folder, &mut listing_buffer(), |entry| {
        if !is_reserved(entry.file_name()) {
            count += 1;
            sum = sum.wrapping_add(xxh3_64(entry.file_name().to_bytes()));
        }
        true
    })?;
    Ok((count, sum))
}

/// Brings the name of a published tree to the disk.
pub(crate) fn sync_name(destination: &Path) -> Result<(), CallFailed> {
    let tree = openat(CWD, destination, DIRECTORY, Mode::empty()).map_err(failed("openat"))?;
    let above = openat(&tree, c"..", DIRECTORY, Mode::empty()).map_err(failed("openat"))?;
    sync_directory(above.as_fd(), tree.as_fd())
}

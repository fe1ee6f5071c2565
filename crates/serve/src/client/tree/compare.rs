//! Compares the entries of a list with those of the destination.

use std::{
    ffi::CStr,
    os::fd::{AsFd, BorrowedFd},
};

use rustix::fs::{FileType, Stat, readlinkat};
use thalweg_core::atomic_file::{failed, ownership::is_own};
use thalweg_tree::{AttributeDifferences, install::EntryAttributes};

use super::directories::TreeDirectory;
use crate::{
    client::FetchError,
    manifest::{ManifestKind, SpecialFile},
};

/// Returns `true` if a file must be fetched. `by_time`: `true` if another modification time means other bytes.
pub fn has_other_bytes(differs: AttributeDifferences, by_time: bool) -> bool {
    differs.kind || differs.content || differs.size || by_time && differs.time
}

/// Compares a listed file with the existing entry of its name. If an existing file with several names differs, its content
/// counts as different, so that a new file replaces it. Otherwise its other names would get the attributes too, for example
/// those in an earlier snapshot.
pub fn compare(
    there: &Stat,
    size: u64,
    attributes: &EntryAttributes,
    directory: &TreeDirectory,
    name: &CStr,
) -> AttributeDifferences {
    let mut differs = AttributeDifferences {
        kind: FileType::from_raw_mode(there.st_mode) != FileType::RegularFile,
        content: !is_trusted(there, attributes, directory.fd.as_fd()),
        size: there.st_size as u64 != size,
        ..attributes.differ_from(there, directory.fd.as_fd())
    };
    if let Some(xattrs) = attributes.xattrs.as_ref().filter(|_| !has_other_bytes(differs, true)) {
        (differs.acl, differs.xattrs) = xattrs.differ_from(directory.fd.as_fd(), name);
    }
    differs.content |= differs.any() && there.st_nlink > 1;
    differs
}

/// Compares a listed directory with the existing one of this name in `above`.
pub fn compare_directory(
    there: &Stat,
    attributes: &EntryAttributes,
    above: BorrowedFd<'_>,
    name: &CStr,
) -> AttributeDifferences {
    let xattrs = attributes.xattrs.as_ref();
    let (acl, xattrs) = xattrs.map_or((false, false), |xattrs| xattrs.differ_from(above, name));
    AttributeDifferences { acl, xattrs, ..attributes.differ_from(there, above) }
}

/// Compares a listed symbolic link or special file with the existing entry of its name.
pub fn compare_node(
    there: &Stat,
    listed: &ManifestKind,
    attributes: &EntryAttributes,
    directory: &TreeDirectory,
    name: &CStr,
) -> Result<AttributeDifferences, FetchError> {
    let kind = FileType::from_raw_mode(there.st_mode);
    if kind != listed.file_type() {
        return Ok(AttributeDifferences { kind: true, ..AttributeDifferences::default() });
    }
    let fd = directory.fd.as_fd();
    let differs = attributes.differ_from(there, fd);
    if let ManifestKind::Link(target) = listed {
        let has = readlinkat(fd, name, Vec::new()).map_err(failed("readlinkat"))?;
        return Ok(AttributeDifferences { content: *has != **target, mode: false, ..differs });
    }
    let has = SpecialFile::of(kind, there.st_rdev).map(ManifestKind::Special);
    let content = has.as_ref() != Some(listed) || !is_trusted(there, attributes, fd);
    let xattrs = attributes.xattrs.as_ref();
    let (acl, xattrs) = xattrs.map_or((false, false), |xattrs| xattrs.differ_from(fd, name));
    Ok(AttributeDifferences { content, acl, xattrs, ..differs })
}

/// Returns `true` if an existing entry may have been created by an earlier run, and not by another user.
fn is_trusted(there: &Stat, attributes: &EntryAttributes, directory: BorrowedFd<'_>) -> bool {
    attributes.owner.is_some_and(|(uid, _)| uid == there.st_uid) || is_own(directory, there)
}

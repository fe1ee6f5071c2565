//! Determines whether the whole destination is full or read-only, or only a part of it.

use rustix::fs::{AtFlags, FileType, StatxFlags, fstatvfs, statx};
use std::{
    ffi::CStr,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
};
use thalweg_sys::Errno;

use crate::copy::{copy_entry::CopyEntry, directory::Directory, run::CopyRun};

/// Returns `true` if a write to `entry` fails like every further write of the copy. Returns `false` for an entry on a
/// file system mounted below the top of the destination, for an entry with another quota, and for a link or device: each
/// may be full or read-only while the rest of the destination is not.
pub(crate) fn is_whole_destination(run: &CopyRun<'_>, entry: &CopyEntry<'_>) -> bool {
    if run.is_single && entry.named_by_caller() {
        return true;
    }
    let (directory, top) = (entry.directory, entry.directory.top(run.is_single));
    let Ok(Some(dir)) = directory.open() else { return directory.own.dev == top.own.dev };
    let here = WriteSpace::of(directory, dir.as_fd());
    let is_in_top = Arc::ptr_eq(directory, top)
        || top.open().is_ok_and(|fd| fd.is_some_and(|fd| WriteSpace::of(top, fd.as_fd()) == here));
    is_in_top && is_plain_entry(dir.as_fd(), entry.name, here.mount)
}

/// Identifies what accepts or refuses new data.
#[derive(PartialEq, Eq)]
struct WriteSpace {
    device: u64,
    // A bind mount of the same device may be read-only.
    mount: Option<u64>,
    // ext4 and XFS report the limit of a project quota as the size of the file system.
    blocks: Option<u64>,
}

impl WriteSpace {
    fn of(directory: &Directory, fd: BorrowedFd<'_>) -> Self {
        let mount = mount_and_type(fd, c"", AtFlags::EMPTY_PATH).ok().and_then(|(mount, _)| mount);
        let blocks = fstatvfs(fd).ok().map(|whole| whole.f_blocks);
        Self { device: directory.own.dev, mount, blocks }
    }
}

/// Returns `true` if the name is free, or leads to a file or directory of the same mount.
fn is_plain_entry(dir: BorrowedFd<'_>, name: &CStr, mount: Option<u64>) -> bool {
    match mount_and_type(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok((own, kind)) => {
            own == mount && matches!(kind, FileType::RegularFile | FileType::Directory)
        }
        Err(_) => true,
    }
}

/// Returns the mount id (Linux 5.8) and the type of an entry.
fn mount_and_type(
    dir: BorrowedFd<'_>,
    name: &CStr,
    flags: AtFlags,
) -> Result<(Option<u64>, FileType), Errno> {
    let found = statx(dir, name, flags, StatxFlags::MNT_ID | StatxFlags::TYPE)?;
    let has_mount = found.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    let mount = has_mount.then_some(found.stx_mnt_id);
    Ok((mount, FileType::from_raw_mode(u32::from(found.stx_mode))))
}

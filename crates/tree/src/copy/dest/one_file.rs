//! Detects that two files with different device or inode numbers are one file. Overlayfs and FUSE show files under
//! their own numbers. A network file system that is mounted on its own server does this too. Truncating the
//! destination would then empty the source, and a move would delete the only file.

use rustix::fs::{
    AtFlags, FileType, Stat, StatxFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, fstat,
    futimens, statat, statx, utimensat,
};
use std::{os::fd::OwnedFd, thread, time::Duration};
use thalweg_sys::Errno;

use crate::{
    copy::{attributes::modified, name_at::NameAt},
    error::{Attempt, at_sink, at_source},
    identity::{Id, ctime, kind, mtime, size},
    times::Time,
};

/// Upper bound of the resolution of file times. The kernel's clock ticks at least a hundred times per second.
const TICK: Duration = Duration::from_millis(20);

/// Seconds of a day.
const DAY: i64 = 86_400;

/// Returns `true` if source and sink may be one file: the sizes are equal and the device numbers differ. With equal
/// device numbers, the inode numbers already identify the file.
pub(super) fn may_be_one(source: &Stat, sink: &Stat) -> bool {
    let are_files = [source, sink].map(kind) == [FileType::RegularFile; 2];
    are_files && source.st_dev != sink.st_dev && size(sink) > 0 && size(source) == size(sink)
}

/// Returns `true` if a change of the sink is visible in the source. Changes the modification time of the sink, which
/// the copy sets later anyway, and reads the time of the source. If both are one file, restores its time.
pub(super) fn is_one(source: &OwnedFd, sink: &OwnedFd, own: &Stat) -> Attempt<bool> {
    let before = modified_now(source)?;
    // Some file systems store only even seconds, so the time changes by two seconds.
    match futimens(sink, &modified(own.st_mtime - 2, 0)) {
        // A user that may write the file but does not own it may only set both times to the current time.
        Err(Errno::PERM | Errno::ACCESS) => {
            thread::sleep(TICK);
            let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
            futimens(sink, &Timestamps { last_access: now, last_modification: now })
        }
        answer => answer,
    }
    .map_err(at_sink("futimens"))?;
    let is_one = modified_now(source)? != before;
    if is_one {
        // If another user owns the file, this call may fail. The file then keeps the changed time.
        let _ = futimens(sink, &modified(own.st_mtime, mtime(own).1));
    }
    Ok(is_one)
}

/// Returns `true` if an entry and its copy are one entry. Entries of one file system are compared by their numbers.
/// Otherwise, returns `true` if a change of the source is visible in the copy. Only the access time is changed, and then
/// restored. If the process is killed in between, a later move therefore finds no change.
pub(crate) fn are_one(
    source: NameAt<'_>,
    stat: &Stat,
    copy: NameAt<'_>,
    copy_stat: &Stat,
) -> Result<bool, Errno> {
    if stat.st_dev == copy_stat.st_dev {
        return Ok(Id::of(stat) == Id::of(copy_stat));
    }
    match is_visible(source, stat, copy) {
        // Only the owner may set the time of the source. This user may own the copy.
        Err(Errno::PERM | Errno::ACCESS) => is_visible(copy, copy_stat, source),
        answer => answer,
    }
}

/// Returns `true` if a change of the access time of one entry is visible in the other one.
fn is_visible(changed: NameAt<'_>, own: &Stat, other: NameAt<'_>) -> Result<bool, Errno> {
    let set = |tv_sec, tv_nsec| {
        let last_modification = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let times = Timestamps { last_access: Timespec { tv_sec, tv_nsec }, last_modification };
        utimensat(changed.dir, changed.name, &times, AtFlags::SYMLINK_NOFOLLOW)
    };
    let before = accessed_and_changed_now(other)?;
    // FAT stores only the day of the last access.
    set(own.st_atime - 2 * DAY, 0)?;
    let after = accessed_and_changed_now(other);
    // The file is deleted, or keeps a time that no copy compares.
    let _ = set(own.st_atime, own.st_atime_nsec as _);
    Ok(after? != before)
}

/// Returns access time and change time from the file system, not from the attribute cache of the kernel. A file system
/// that ignores a new access time may store the change time.
fn accessed_and_changed_now(NameAt { dir, name }: NameAt<'_>) -> Result<[Time; 2], Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    let wanted = StatxFlags::ATIME | StatxFlags::CTIME;
    if let Ok(now) = statx(dir, name, flags | AtFlags::STATX_FORCE_SYNC, wanted) {
        let accessed = (now.stx_atime.tv_sec, now.stx_atime.tv_nsec);
        return Ok([accessed, (now.stx_ctime.tv_sec, now.stx_ctime.tv_nsec)]);
    }
    let now = statat(dir, name, flags)?;
    Ok([(now.st_atime, now.st_atime_nsec as u32), ctime(&now)])
}

/// Returns the modification time from the file system, not from the attribute cache of the kernel.
fn modified_now(file: &OwnedFd) -> Attempt<Time> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    match statx(file, c"", flags, StatxFlags::MTIME) {
        Ok(now) => Ok((now.stx_mtime.tv_sec, now.stx_mtime.tv_nsec)),
        Err(_) => Ok(mtime(&fstat(file).map_err(at_source("fstat"))?)),
    }
}

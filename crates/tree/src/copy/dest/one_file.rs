//! Detects that two files with different device or inode numbers are one file. Overlayfs and FUSE show files under
//! their own numbers. A network file system that is mounted on its own server does this too. Truncating the
//! destination would then empty the source.

use rustix::fs::{
    AtFlags, FileType, Stat, StatxFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, fstat,
    futimens, statx,
};
use std::{os::fd::OwnedFd, thread, time::Duration};
use thalweg_sys::Errno;

use crate::{
    error::{Attempt, at_sink, at_source},
    identity::{kind, mtime, size},
    times::Time,
};

/// Upper bound of the resolution of file times. The kernel's clock ticks at least a hundred times per second.
const TICK: Duration = Duration::from_millis(20);

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
    let modified = |tv_sec, tv_nsec| Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec, tv_nsec },
    };
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
        let _ = futimens(sink, &modified(own.st_mtime, own.st_mtime_nsec as _));
    }
    Ok(is_one)
}

/// Returns the modification time from the file system, not from the attribute cache of the kernel.
fn modified_now(file: &OwnedFd) -> Attempt<Time> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    match statx(file, c"", flags, StatxFlags::MTIME) {
        Ok(now) => Ok((now.stx_mtime.tv_sec, now.stx_mtime.tv_nsec)),
        Err(_) => Ok(mtime(&fstat(file).map_err(at_source("fstat"))?)),
    }
}

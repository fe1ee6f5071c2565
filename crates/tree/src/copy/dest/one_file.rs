//! Whether two files with different numbers are one. Overlayfs shows the files of its layers under numbers of its own,
//! as FUSE does, and a server that is mounted on itself: emptied by the one name, the other has nothing to be copied.

use rustix::fs::{
    AtFlags, FileType, Stat, StatxFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, fstat,
    futimens, statx,
};
use std::{os::fd::OwnedFd, thread, time::Duration};
use thalweg_sys::Errno;

use crate::{
    error::{Attempt, at_sink, at_source},
    identity::{kind, mtime, size},
};

/// The clock of files ticks a hundred times a second, or faster.
const TICK: Duration = Duration::from_millis(20);

/// Whether that can be: files of one file system have different numbers, and one file has one size.
pub(super) fn may_be_one(source: &Stat, sink: &Stat) -> bool {
    let are_files = [source, sink].map(kind) == [FileType::RegularFile; 2];
    are_files && source.st_dev != sink.st_dev && size(sink) > 0 && size(source) == size(sink)
}

/// Whether what happens to the sink happens to the source: its time of modification is set, which the copy will change
/// anyway, and that of the source is looked at. If they are one, it gets its time back.
pub(super) fn is_one(source: &OwnedFd, sink: &OwnedFd, own: &Stat) -> Attempt<bool> {
    let before = modified_now(source)?;
    let modified = |tv_sec, tv_nsec| Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec, tv_nsec },
    };
    // Some file systems keep even seconds only.
    match futimens(sink, &modified(own.st_mtime - 2, 0)) {
        // Who does not own a file may set both its times to now, and nothing else.
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
        // It may be another user's: then it keeps the time of this attempt.
        let _ = futimens(sink, &modified(own.st_mtime, own.st_mtime_nsec as _));
    }
    Ok(is_one)
}

/// The time of modification as the file system has it, not as the kernel may remember it.
fn modified_now(file: &OwnedFd) -> Attempt<(i64, u64)> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    match statx(file, c"", flags, StatxFlags::MTIME) {
        Ok(now) => Ok((now.stx_mtime.tv_sec, u64::from(now.stx_mtime.tv_nsec))),
        Err(_) => Ok(mtime(&fstat(file).map_err(at_source("fstat"))?)),
    }
}

//! Syncing of files and directories to stable storage.

use rustix::fs::{Mode, OFlags, openat};
use std::os::fd::BorrowedFd;
use thalweg_sys::{Errno, io};

use super::{CallFailed, failed};

/// The data that must be on stable storage when a file is published, and when a command ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fsync {
    /// Nothing: the kernel writes the data back at its own pace.
    Never,
    /// The data of a file that replaces another file, before it is published. After a power failure, the name has
    /// either the old contents or the new ones.
    #[default]
    Auto,
    /// The data, attributes and names of all files, and the directories that contain them, when the command ends.
    Always,
}

/// Syncs a directory, and with it the names in it. `inside` is an open file in the directory. If the directory cannot
/// be read or the file system cannot sync directories, `syncfs` on that file replaces `fsync`.
pub fn sync_directory(dir: BorrowedFd<'_>, inside: BorrowedFd<'_>) -> Result<(), CallFailed> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // The directory is opened again, because `dir` may be an O_PATH descriptor, which fsync(2) refuses.
    let synced = match openat(dir, c".", flags, Mode::empty()) {
        Ok(dir) => io::sync(&dir),
        Err(Errno::ACCESS) => Err(Errno::INVAL),
        Err(errno) => return Err(failed("openat")(errno)),
    };
    match synced {
        // Some file systems do not support fsync on directories.
        Err(Errno::INVAL) => io::sync_filesystem(inside).map_err(failed("syncfs")),
        answer => answer.map_err(failed("fsync")),
    }
}

//! Which of what is written must be on stable storage, and how a directory gets there.

use rustix::fs::{Mode, OFlags, openat};
use std::os::fd::BorrowedFd;
use thalweg_sys::{Errno, io};

use super::{CallFailed, failed};

/// What must be on stable storage when a file gets its name, and when a command ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fsync {
    /// Nothing: the kernel writes when it likes.
    Never,
    /// The data of a file that replaces another one, before it takes the name: after a power cut the name has the old
    /// contents or the new.
    #[default]
    Auto,
    /// Data, attributes and names of everything, and the directories with those names, when the command ends.
    Always,
}

/// Brings a directory, and with it the names in it, to stable storage. `inside` is an open file in it: with its help a
/// directory is synced that may not be read.
pub fn sync_directory(dir: BorrowedFd<'_>, inside: BorrowedFd<'_>) -> Result<(), CallFailed> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // Opened again: `dir` may be an O_PATH descriptor, which fsync(2) refuses.
    let synced = match openat(dir, c".", flags, Mode::empty()) {
        Ok(dir) => io::sync(&dir),
        Err(Errno::ACCESS) => Err(Errno::INVAL),
        Err(errno) => return Err(failed("openat")(errno)),
    };
    match synced {
        // Not every file system has fsync for directories.
        Err(Errno::INVAL) => io::sync_filesystem(inside).map_err(failed("syncfs")),
        answer => answer.map_err(failed("fsync")),
    }
}

//! Brings a whole file system to stable storage with one call.

use rustix::fs::{Mode, openat};
use std::{
    os::fd::{BorrowedFd, OwnedFd},
    sync::OnceLock,
};
use thalweg_core::atomic_file::{CallFailed, failed};
use thalweg_sys::{Errno, host::filesystem, io};

use crate::{fs::list::DIRECTORY, identity::Id};

/// A file system that one `syncfs` brings to stable storage as a whole.
#[derive(Debug)]
pub struct WholeSync {
    fd: OwnedFd,
    device: u64,
    // The first failed sync. The kernel reports a failed write-back only once per descriptor, but the failure may concern
    // everything that was written before.
    failed: OnceLock<CallFailed>,
}

impl WholeSync {
    /// Opens the file system of a directory. The caller must do this before it writes anything. Returns `None` if
    /// syncfs(2) does not reach the device. FUSE and network file servers, for example, receive only fsync(2).
    pub fn of(dir: BorrowedFd<'_>) -> Option<Self> {
        let found = filesystem(dir).ok().filter(|found| !found.remote)?;
        let fd = openat(dir, c".", DIRECTORY, Mode::empty()).ok()?;
        Some(Self { fd, device: found.dev, failed: OnceLock::new() })
    }

    /// Returns `true` if a directory is on this file system.
    pub(crate) fn covers(&self, directory: Id) -> bool {
        self.device == directory.dev
    }

    /// Brings everything to stable storage. After the first failure, every later call returns that failure.
    pub fn sync(&self) -> Result<(), CallFailed> {
        let synced = io::sync_filesystem(&self.fd).map_err(failed("syncfs"));
        if let Err(failed) = synced {
            self.note(failed);
        }
        synced.and_then(|()| self.check())
    }

    /// Records a failed sync, unless the kernel or a filter refused the call.
    pub(crate) fn note(&self, failed: CallFailed) {
        if !is_refused(failed.errno) {
            let _ = self.failed.set(failed);
        }
    }

    /// Returns the first failure of a sync. A disk that fails to flush its cache may lose data of any file, and the
    /// next sync of that file succeeds, because the kernel has already written its pages.
    pub(crate) fn check(&self) -> Result<(), CallFailed> {
        self.failed.get().map_or(Ok(()), |failed| Err(*failed))
    }
}

/// Returns `true` if this error shows that a sync was not even tried.
pub(crate) fn is_refused(errno: Errno) -> bool {
    matches!(errno, Errno::NOSYS | Errno::PERM | Errno::INVAL | Errno::OPNOTSUPP)
}

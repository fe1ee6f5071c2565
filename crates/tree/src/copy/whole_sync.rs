//! Brings a whole file system to stable storage with one call.

use rustix::fs::{Mode, openat};
use std::{
    os::fd::{BorrowedFd, OwnedFd},
    sync::OnceLock,
};
use thalweg_core::atomic_file::{CallFailed, failed};
use thalweg_sys::{Errno, host::filesystem, io};

use crate::{identity::Id, listing::DIRECTORY};

/// A file system that one call brings to stable storage whole.
#[derive(Debug)]
pub struct WholeSync {
    fd: OwnedFd,
    device: u64,
    // The kernel reports a failed write-back once for this descriptor; it holds for all that was written until then.
    failed: OnceLock<Errno>,
}

impl WholeSync {
    /// The file system of a directory, to be opened before anything is written. `None` where syncfs(2) does not reach the
    /// device: a FUSE server and a file server hear of fsync(2) only.
    pub fn of(dir: BorrowedFd<'_>) -> Option<Self> {
        let found = filesystem(dir).ok().filter(|found| !found.remote)?;
        let fd = openat(dir, c".", DIRECTORY, Mode::empty()).ok()?;
        Some(Self { fd, device: found.dev, failed: OnceLock::new() })
    }

    /// Whether a directory lies on it.
    pub(crate) fn covers(&self, directory: Id) -> bool {
        self.device == directory.dev
    }

    /// Brings everything to stable storage. After one failure every later call fails.
    pub fn sync(&self) -> Result<(), CallFailed> {
        if let Err(errno) = io::sync_filesystem(&self.fd) {
            let _ = self.failed.set(errno);
        }
        self.failed.get().map_or(Ok(()), |errno| Err(failed("syncfs")(*errno)))
    }
}

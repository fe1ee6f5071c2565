//! Brings a whole file system to stable storage with one call.

use rustix::fs::{Mode, openat};
use std::{
    os::fd::{BorrowedFd, OwnedFd},
    sync::Mutex,
};
use thalweg_core::atomic_file::{CallFailed, failed};
use thalweg_sys::{Errno, host::filesystem, io};

use crate::{fs::list::DIRECTORY, identity::Id, threads::locked};

/// Up to this many files are synced one by one: syncfs(2) also writes data of other processes.
const FEW: usize = 4;

/// A file system that one `syncfs` brings to stable storage as a whole.
#[derive(Debug)]
pub struct WholeSync {
    fd: OwnedFd,
    device: u64,
    // The first failed sync. The kernel reports a failed write-back only once per descriptor, but the failure may concern
    // everything that was written before. `sync` holds the lock during its call. Otherwise another sync of the same
    // write-back could succeed before the failure is recorded.
    failed: Mutex<Option<CallFailed>>,
}

impl WholeSync {
    /// Opens the file system of a directory. The caller must do this before it writes anything. Returns `None` if
    /// syncfs(2) does not reach the device. FUSE and network file servers, for example, receive only fsync(2).
    pub fn of(dir: BorrowedFd<'_>) -> Option<Self> {
        let found = filesystem(dir).ok().filter(|found| !found.remote)?;
        let fd = openat(dir, c".", DIRECTORY, Mode::empty()).ok()?;
        Some(Self { fd, device: found.dev, failed: Mutex::default() })
    }

    /// Returns `true` if a directory is on this file system.
    pub(crate) fn covers(&self, directory: Id) -> bool {
        self.device == directory.dev
    }

    /// Brings everything to stable storage. After the first failure, every later call returns that failure.
    pub fn sync(&self) -> Result<(), CallFailed> {
        self.sync_by(|| io::sync_filesystem(&self.fd))
    }

    fn sync_by(&self, call: impl FnOnce() -> Result<(), Errno>) -> Result<(), CallFailed> {
        let mut first = locked(&self.failed);
        let synced = call().map_err(failed("syncfs"));
        if let Err(failed) = synced
            && !io::may_be_unknown(failed.errno)
        {
            first.get_or_insert(failed);
        }
        synced.and_then(|()| first.map_or(Ok(()), Err))
    }

    /// Syncs `count` complete files before they are published. Returns `false` if each file must be synced separately:
    /// there are few files, or syncfs(2) is not available. After an error, no file may be published. A sync of each
    /// file would then succeed although its data may be lost, because the kernel has already written its pages to the
    /// cache of the disk.
    pub fn sync_batch(whole: Option<&Self>, count: usize) -> Result<bool, CallFailed> {
        let Some(whole) = whole.filter(|_| count > FEW) else { return Ok(false) };
        match whole.sync() {
            Err(failed) if io::may_be_unknown(failed.errno) => Ok(false),
            synced => synced.map(|()| true),
        }
    }

    /// Returns the result of the sync of one file: its own failure, or else an earlier failure on the same file system.
    /// When a disk fails to flush its cache (EIO), it may lose data of any file.
    pub fn settle(whole: Option<&Self>, synced: Result<(), CallFailed>) -> Result<(), CallFailed> {
        let Some(whole) = whole else { return synced };
        let mut first = locked(&whole.failed);
        if let Err(failed @ CallFailed { errno: Errno::IO, .. }) = synced {
            first.get_or_insert(failed);
        }
        synced.and_then(|()| first.map_or(Ok(()), Err))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::mpsc::channel, thread, time::Duration};

    #[test]
    fn a_sync_during_a_failing_one_fails_too() {
        let fd = openat(rustix::fs::CWD, c".", DIRECTORY, Mode::empty()).unwrap();
        let whole = WholeSync { fd, device: 0, failed: Mutex::default() };
        let ((begin, begun), (end, ended)) = (channel(), channel());
        let other = thread::scope(|scope| {
            let whole = &whole;
            let other = scope.spawn(move || {
                begun.recv().unwrap();
                let synced = whole.sync_by(|| Ok(()));
                end.send(()).unwrap();
                synced
            });
            let own = whole.sync_by(|| {
                begin.send(()).unwrap();
                // The other sync waits for this one. Without the lock it would end now.
                let _ = ended.recv_timeout(Duration::from_millis(100));
                Err(Errno::IO)
            });
            assert!(own.is_err());
            other.join().unwrap()
        });
        assert!(other.is_err_and(|failed| failed.errno == Errno::IO));
    }
}

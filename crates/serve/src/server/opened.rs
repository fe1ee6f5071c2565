//! An open file, and the version that was opened.

use std::{
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::OnceLock,
};

use rustix::fs::{Mode, OFlags, Stat, fstat, open};
use thalweg_sys::Errno;

use super::version::FileVersion;
use crate::http::media::content_type;

/// A regular file, open for reading.
#[derive(Debug)]
pub struct ServedFile {
    fd: OwnedFd,
    /// The version immediately before the file was opened.
    pub version: FileVersion,
    kind: OnceLock<String>,
    is_sealed: OnceLock<bool>,
}

/// Flags for opening files. `O_NONBLOCK`: the open must not block if a FIFO or a device has replaced the file since the
/// lookup.
pub const READ: OFlags =
    OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NOCTTY).union(OFlags::NONBLOCK);

impl ServedFile {
    /// Opens the file of an `O_PATH` descriptor through /proc. This works even if another file has its name by now. The
    /// version is that of the lookup. Returns `None` if /proc is not mounted.
    pub fn again(found: BorrowedFd<'_>, stat: &Stat) -> Result<Option<Self>, Errno> {
        let path = format!("/proc/self/fd/{}", found.as_raw_fd());
        match open(path, READ, Mode::empty()) {
            Ok(fd) => Ok(Some(Self::new(fd, stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Wraps a file that was opened by its name. Fails with `EAGAIN` if it is another file or version than the one
    /// found.
    pub fn by_name(fd: OwnedFd, found: &Stat) -> Result<Self, Errno> {
        let file = Self::new(fd, found);
        if file.is_unchanged() { Ok(file) } else { Err(Errno::AGAIN) }
    }

    fn new(fd: OwnedFd, found: &Stat) -> Self {
        let version = FileVersion::of(found);
        Self { fd, version, kind: OnceLock::new(), is_sealed: OnceLock::new() }
    }

    /// Returns `true` if the file is sealed and can never change, so that its pages may be sent without a copy. The
    /// result is cached.
    pub fn is_sealed(&self) -> bool {
        *self.is_sealed.get_or_init(|| thalweg_core::is_sealed(self.as_fd()))
    }

    /// Returns the value of `Content-Type`, which depends on the path by which the file was opened.
    pub fn kind(&self, path: &Path) -> &str {
        self.kind.get_or_init(|| content_type(path))
    }

    /// Returns `true` if the file is still the version that was opened.
    pub fn is_unchanged(&self) -> bool {
        fstat(&self.fd).is_ok_and(|stat| FileVersion::of(&stat) == self.version)
    }
}

impl AsFd for ServedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

//! A file that is open, and the version of it that was.

use std::{
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::OnceLock,
};

use rustix::fs::{Mode, OFlags, Stat, fstat, open};
use thalweg_sys::Errno;

use super::version::Version;
use crate::http::media::content_type;

/// A regular file, open for reading.
#[derive(Debug)]
pub struct Opened {
    fd: OwnedFd,
    /// As it was just before it was opened.
    pub version: Version,
    kind: OnceLock<String>,
    is_sealed: OnceLock<bool>,
}

/// How files are opened: whatever has got a file's name meanwhile, it is not waited for.
pub const READ: OFlags =
    OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NOCTTY).union(OFlags::NONBLOCK);

impl Opened {
    /// Opens what such a descriptor stands for: by /proc, so that it is that file and no other that has
    /// got its name. It counts as it was when it was found. None where there is no /proc.
    pub fn again(found: BorrowedFd<'_>, stat: &Stat) -> Result<Option<Self>, Errno> {
        let path = format!("/proc/self/fd/{}", found.as_raw_fd());
        match open(path, READ, Mode::empty()) {
            Ok(fd) => Ok(Some(Self::new(fd, stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// What was opened by its name; AGAIN if that is another version than what was found, or another file.
    pub fn by_name(fd: OwnedFd, found: &Stat) -> Result<Self, Errno> {
        let file = Self::new(fd, found);
        if file.is_unchanged() { Ok(file) } else { Err(Errno::AGAIN) }
    }

    fn new(fd: OwnedFd, found: &Stat) -> Self {
        let version = Version::of(found);
        Self { fd, version, kind: OnceLock::new(), is_sealed: OnceLock::new() }
    }

    /// Whether it can never change, so that its pages may go out as they are. Asked of the kernel once.
    pub fn is_sealed(&self) -> bool {
        *self.is_sealed.get_or_init(|| thalweg_core::is_sealed(self.as_fd()))
    }

    /// The value of Content-Type, by the name it was opened by.
    pub fn kind(&self, path: &Path) -> &str {
        self.kind.get_or_init(|| content_type(path))
    }

    /// Whether it is still the version that was opened.
    pub fn is_unchanged(&self) -> bool {
        fstat(&self.fd).is_ok_and(|stat| Version::of(&stat) == self.version)
    }
}

impl AsFd for Opened {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

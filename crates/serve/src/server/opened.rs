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
}

impl Opened {
    /// Opens what such a descriptor stands for: by /proc, so that it is that file and no other that has
    /// got its name. It counts as it was when it was found.
    pub fn again(found: BorrowedFd<'_>, stat: &Stat) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let path = format!("/proc/self/fd/{}", found.as_raw_fd());
        let fd = open(path, flags, Mode::empty())?;
        Ok(Self { fd, version: Version::of(stat), kind: OnceLock::new() })
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

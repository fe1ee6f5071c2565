//! Creates entries without contents: links, FIFOs, sockets and device nodes.

use rustix::fs::{AtFlags, Dev, FileType, Mode, Stat, linkat, mknodat, symlinkat};
use std::{
    ffi::{CStr, CString},
    os::fd::BorrowedFd,
};
use thalweg_core::{
    atomic_file::{CallFailed, name::unique},
    cadence::ATTEMPTS,
};
use thalweg_sys::Errno;

/// An entry to create.
#[derive(Clone, Copy, Debug)]
pub enum NewEntry<'a> {
    /// A symbolic link with this target.
    Symlink(&'a CStr),
    /// A hard link to an existing file.
    HardLink {
        /// The directory of that file.
        dir: BorrowedFd<'a>,
        /// Its name.
        name: &'a CStr,
        /// `SYMLINK_FOLLOW` if a symbolic link of that name is followed, otherwise empty.
        flags: AtFlags,
    },
    /// A FIFO, a socket or a device node.
    Special {
        /// Its type.
        kind: FileType,
        /// Its permission bits, which the umask reduces.
        mode: Mode,
        /// The number of a device; otherwise 0.
        device: Dev,
    },
}

impl NewEntry<'_> {
    /// Creates the entry. Returns `false` if the name exists.
    pub fn create(&self, dir: BorrowedFd<'_>, name: &CStr) -> Result<bool, CallFailed> {
        let created = match *self {
            Self::Symlink(target) => symlinkat(target, dir, name),
            Self::HardLink { dir: from, name: old, flags } => linkat(from, old, dir, name, flags),
            Self::Special { kind, mode, device } => mknodat(dir, name, kind, mode, device),
        };
        match created {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(errno) => Err(CallFailed { call: self.call(), errno }),
        }
    }

    /// Creates the entry under an unused temporary name, from which it can be renamed to `name`. Returns that name.
    pub(crate) fn create_beside(
        &self,
        dir: BorrowedFd<'_>,
        name: &CStr,
    ) -> Result<CString, CallFailed> {
        // If the unique name exists, the entry belongs to another process and must not be published.
        for _ in 0..ATTEMPTS {
            let temporary = unique(name);
            if self.create(dir, &temporary)? {
                return Ok(temporary);
            }
        }
        Err(CallFailed { call: self.call(), errno: Errno::EXIST })
    }

    /// Returns the type of the entry. A hard link counts as a regular file.
    pub(crate) fn kind(&self) -> FileType {
        match *self {
            Self::Symlink(_) => FileType::Symlink,
            Self::HardLink { .. } => FileType::RegularFile,
            Self::Special { kind, .. } => kind,
        }
    }

    /// Returns `true` if an existing entry has this type and device number.
    pub(crate) fn may_be(&self, there: &Stat) -> bool {
        let device = match *self {
            Self::Special { device, .. } => device,
            Self::Symlink(_) | Self::HardLink { .. } => there.st_rdev,
        };
        FileType::from_raw_mode(there.st_mode) == self.kind() && there.st_rdev == device
    }

    /// Returns the system call that creates the entry.
    pub fn call(&self) -> &'static str {
        match self {
            Self::Symlink(_) => "symlinkat",
            Self::HardLink { .. } => "linkat",
            Self::Special { .. } => "mknodat",
        }
    }
}

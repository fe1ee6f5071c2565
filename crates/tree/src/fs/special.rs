//! Creates entries without contents: links, FIFOs, sockets and device nodes.

use rustix::fs::{AtFlags, Dev, FileType, Mode, Stat, linkat, mknodat, symlinkat};
use std::{
    ffi::{CStr, CString},
    os::fd::BorrowedFd,
};
use thalweg_core::{
    atomic_file::{CallFailed, failed, name::unique, rename, unlink},
    cadence::ATTEMPTS,
};
use thalweg_sys::{Errno, io};

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

/// A new entry under a temporary name, which is removed on drop.
#[derive(Debug)]
pub struct TemporaryEntry<'a> {
    dir: BorrowedFd<'a>,
    name: CString,
    /// `true` for a hard link. If both names refer to one file, rename(2) does nothing and leaves both.
    is_hard_link: bool,
    is_renamed: bool,
}

impl<'a> NewEntry<'a> {
    /// Returns a hard link to an existing file, or to a symbolic link itself.
    pub fn hard_link(dir: BorrowedFd<'a>, name: &'a CStr) -> Self {
        Self::HardLink { dir, name, flags: AtFlags::empty() }
    }

    /// Creates the entry. Returns `false` if the name exists.
    pub fn create(&self, dir: BorrowedFd<'_>, name: &CStr) -> Result<bool, CallFailed> {
        let created = match *self {
            Self::Symlink(target) => symlinkat(target, dir, name),
            // Tests can make `io::link` fail.
            Self::HardLink { dir: from, name: old, flags } if flags.is_empty() => {
                io::link(from, old, dir, name)
            }
            Self::HardLink { dir: from, name: old, flags } => linkat(from, old, dir, name, flags),
            Self::Special { kind, mode, device } => mknodat(dir, name, kind, mode, device),
        };
        match created {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(errno) => Err(CallFailed { call: self.call(), errno }),
        }
    }

    /// Creates the entry under an unused temporary name. [`TemporaryEntry::install`] then renames it to `name`.
    pub fn create_beside<'d>(
        &self,
        dir: BorrowedFd<'d>,
        name: &CStr,
    ) -> Result<TemporaryEntry<'d>, CallFailed> {
        // If the unique name exists, the entry belongs to another process and must not be published.
        for _ in 0..ATTEMPTS {
            let temporary = unique(name);
            if self.create(dir, &temporary)? {
                let is_hard_link = matches!(self, Self::HardLink { .. });
                return Ok(TemporaryEntry {
                    dir,
                    name: temporary,
                    is_hard_link,
                    is_renamed: false,
                });
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

impl<'a> TemporaryEntry<'a> {
    /// Takes over an existing entry under a temporary name, which may be a hard link.
    pub(crate) fn existing(dir: BorrowedFd<'a>, name: CString) -> Self {
        Self { dir, name, is_hard_link: true, is_renamed: false }
    }

    /// Returns the temporary name.
    pub fn name(&self) -> &CStr {
        &self.name
    }

    /// Renames the entry to `name`. It atomically replaces an existing entry; with `keep`, fails with EEXIST instead.
    pub fn install(mut self, name: &CStr, keep: bool) -> Result<(), CallFailed> {
        rename(self.dir, &self.name, name, keep).map_err(failed("renameat2"))?;
        self.is_renamed = keep || !self.is_hard_link;
        Ok(())
    }
}

impl Drop for TemporaryEntry<'_> {
    fn drop(&mut self) {
        if !self.is_renamed {
            // `drop` cannot return an error.
            let _ = unlink(self.dir, &self.name);
        }
    }
}

//! Gives a listening socket its name.
//!
//! The socket is bound under a unique name and renamed once it listens. No lock is used: in a directory such as `/tmp`,
//! another user could hold one for ever. The stale socket file of a killed process is exchanged with the new one. A
//! process that obtains anything else by the exchange returns it, so of several processes that find the same stale file,
//! exactly one listens. The name always has a socket file meanwhile.

use crate::error::{Error, Result};
use rustix::{
    fd::{AsFd, AsRawFd, OwnedFd},
    fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, openat, statat},
    process::geteuid,
};
use std::{
    ffi::{CStr, CString, OsStr},
    os::unix::ffi::OsStrExt,
    path::Path,
};
use thalweg_core::atomic_file::{name::unique, unlink};
use thalweg_core::cadence::ATTEMPTS;
use thalweg_sys::{Errno, io, peer};

/// The directory of a socket file, and its name.
pub(super) struct SocketPlace<'a> {
    path: &'a Path,
    directory: OwnedFd,
    name: CString,
}

impl<'a> SocketPlace<'a> {
    pub fn of(path: &'a Path) -> Result<Self> {
        let above = match path.parent() {
            Some(above) if above != Path::new("") => above,
            _ => Path::new("."),
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, above, flags, Mode::empty());
        let directory = directory.map_err(Error::at("open", above))?;
        let name = path.file_name().and_then(|name| CString::new(name.as_bytes()).ok());
        let name = name.ok_or_else(|| Error::at("bind", path)(Errno::INVAL))?;
        Ok(Self { path, directory, name })
    }

    /// Creates a socket with the name `fresh`, and listens.
    pub fn listen(&self, fresh: &CStr, mode: Mode) -> Result<OwnedFd> {
        // The final path must also fit into a socket address, because clients connect to it.
        peer::check_path(self.path).map_err(Error::at("bind", self.path))?;
        let fresh = OsStr::from_bytes(fresh.to_bytes());
        let answer = match peer::listen(&self.path.with_file_name(fresh), mode) {
            // The path with the unique name does not fit into a socket address. Use a short path through /proc/self/fd.
            Err(Errno::NAMETOOLONG) => {
                let short = format!("/proc/self/fd/{}", self.directory.as_raw_fd());
                peer::listen(&Path::new(&short).join(fresh), mode)
            }
            answer => answer,
        };
        answer.map_err(Error::at("bind", self.path))
    }

    /// Renames `fresh` to the final name. Returns the socket file, opened with `O_PATH`.
    pub fn name(&self, fresh: &CStr) -> Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.directory, fresh, flags, Mode::empty());
        let file = file.map_err(Error::at("open", self.path))?;
        for _ in 0..ATTEMPTS {
            match io::rename_new(&self.directory, fresh, &self.directory, &*self.name) {
                Ok(()) => return Ok(file),
                Err(Errno::EXIST) if self.replace_stale(fresh, &file)? => return Ok(file),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(Error::at("bind", self.path)(errno)),
            }
        }
        Err(Error::at("bind", self.path)(Errno::ADDRINUSE))
    }

    pub fn remove(&self, name: &CStr) {
        // An error is ignored: a file that remains has a hidden name, which is never used again.
        let _ = unlink(self.directory.as_fd(), name);
    }

    /// Replaces a socket file of this user on which no process listens by `ours`, with the name `fresh`. Returns `false`
    /// if the entry was removed or replaced meanwhile. Fails if the entry is anything else.
    fn replace_stale(&self, fresh: &CStr, ours: &OwnedFd) -> Result<bool> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let existing = match openat(&self.directory, &*self.name, flags, Mode::empty()) {
            // The owning process has removed the file.
            Err(Errno::NOENT) => return Ok(false),
            existing => existing.map_err(Error::at("open", self.path))?,
        };
        // The open descriptor keeps the inode number from being reused.
        let stale = fstat(&existing).map_err(Error::at("fstat", self.path))?;
        if stale.st_uid != geteuid().as_raw() {
            let why = format!(
                "the existing file belongs to user {} and is not replaced; use another path",
                stale.st_uid
            );
            return Err(Error::NotPermitted { why });
        }
        let is_socket = FileType::from_raw_mode(stale.st_mode) == FileType::Socket;
        if !is_socket || peer::is_bound(self.path) != Ok(false) {
            return Err(Error::at("bind", self.path)(Errno::ADDRINUSE));
        }
        if !self.exchange(fresh)? {
            return Ok(false);
        }
        if self.is_named(fresh, &stale)? {
            self.remove(fresh);
            return Ok(true);
        }
        // Another process was faster, and has the name. It is returned; if several processes do this at once, each gets
        // another's socket at first.
        let ours = fstat(ours).map_err(Error::at("fstat", self.path))?;
        for _ in 0..EXCHANGES {
            if self.exchange(fresh)? && self.is_named(fresh, &ours)? {
                return Ok(false);
            }
            std::thread::yield_now();
        }
        Err(Error::at("bind", self.path)(Errno::ADDRINUSE))
    }

    /// Exchanges the entry `fresh` and the one of the final name. Returns `false` if the final name does not exist.
    fn exchange(&self, fresh: &CStr) -> Result<bool> {
        match io::exchange(&self.directory, fresh, &*self.name) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(Error::at("rename", self.path)(errno)),
        }
    }

    fn is_named(&self, name: &CStr, file: &Stat) -> Result<bool> {
        let named = statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW);
        let named = named.map_err(Error::at("stat", self.path))?;
        Ok((named.st_dev, named.st_ino) == (file.st_dev, file.st_ino))
    }
}

/// Number of exchanges after which a process stops to look for its own socket file, because the process that has it was
/// killed.
const EXCHANGES: u32 = 1000;

/// Returns a unique name. It is short, regardless of the final name.
pub(super) fn fresh_name() -> CString {
    unique(c"socket")
}

//! Gives a listening socket its name.
//!
//! The socket is bound under a unique name, and renamed when it listens. There is no lock, because in a directory such
//! as `/tmp` another user could hold it forever. The stale socket file of a killed process is first renamed, then
//! checked again, then removed. Therefore two processes that replace the same stale file never remove each other's new
//! socket.

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
                Err(Errno::EXIST) => self.remove_stale()?,
                Err(errno) => return Err(Error::at("bind", self.path)(errno)),
            }
        }
        Err(Error::at("bind", self.path)(Errno::ADDRINUSE))
    }

    pub fn remove(&self, name: &CStr) {
        // An error is ignored: a file that remains has a hidden name, which is never used again.
        let _ = unlink(self.directory.as_fd(), name);
    }

    /// Removes a socket file of this user if no process listens on it. Fails for every other entry.
    fn remove_stale(&self) -> Result<()> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let there = match openat(&self.directory, &*self.name, flags, Mode::empty()) {
            // The owner has just removed the file.
            Err(Errno::NOENT) => return Ok(()),
            there => there.map_err(Error::at("open", self.path))?,
        };
        let stat = fstat(&there).map_err(Error::at("fstat", self.path))?;
        if stat.st_uid != geteuid().as_raw() {
            let why = format!(
                "the existing file belongs to user {} and is not replaced; use another path",
                stat.st_uid
            );
            return Err(Error::NotPermitted { why });
        }
        let is_socket = FileType::from_raw_mode(stat.st_mode) == FileType::Socket;
        if !is_socket || peer::is_bound(self.path) != Ok(false) {
            return Err(Error::at("bind", self.path)(Errno::ADDRINUSE));
        }
        let aside = fresh_name();
        match io::rename_new(&self.directory, &*self.name, &self.directory, &*aside) {
            Err(Errno::NOENT) => return Ok(()),
            answer => answer.map_err(Error::at("rename", self.path))?,
        }
        let moved = statat(&self.directory, &*aside, AtFlags::SYMLINK_NOFOLLOW);
        if !moved.is_ok_and(|moved| is_same(&moved, &stat)) {
            // In the meantime another process has given its own socket this name, so restore it.
            let _ = io::rename_new(&self.directory, &*aside, &self.directory, &*self.name);
        }
        self.remove(&aside);
        Ok(())
    }
}

/// Returns a unique name, which is short even if the final name is long.
pub(super) fn fresh_name() -> CString {
    unique(c"socket")
}

fn is_same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

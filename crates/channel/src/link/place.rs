//! Gives a listening socket its name.
//!
//! The socket is bound under a unique name and renamed when it listens. A listener never replaces another file, so two
//! processes cannot both get the name. The stale socket file of a killed process is removed first. The process that removes
//! it holds a lock, so it removes the file that it has checked. Only this user can open the lock file, because in a
//! directory such as `/tmp` another user could hold the lock forever.

use crate::error::{Error, Result};
use rustix::{
    fd::{AsFd, AsRawFd, OwnedFd},
    fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, flock, openat, statat},
    process::geteuid,
};
use std::{
    ffi::{CStr, CString, OsStr},
    os::unix::ffi::OsStrExt,
    path::Path,
    thread,
};
use thalweg_core::atomic_file::{lock::is_named, name::unique, unlink};
use thalweg_core::cadence::{ATTEMPTS, Deadline, HANG, RETRY_PAUSE};
use thalweg_core::{shown, trusted_file::lock_file};
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

    /// Removes a socket file of this user on which no process listens. Fails for every other entry.
    fn remove_stale(&self) -> Result<()> {
        let _lock = self.lock()?;
        let stat = match statat(&self.directory, &*self.name, AtFlags::SYMLINK_NOFOLLOW) {
            // The owner has just removed the file.
            Err(Errno::NOENT) => return Ok(()),
            stat => stat.map_err(Error::at("stat", self.path))?,
        };
        if stat.st_uid != geteuid().as_raw() {
            let why = format!(
                "the existing file belongs to user {} and is not replaced; use another path",
                stat.st_uid
            );
            return Err(Error::NotPermitted { why });
        }
        let is_socket = FileType::from_raw_mode(stat.st_mode) == FileType::Socket;
        match peer::is_bound(self.path) {
            Ok(false) if is_socket => {}
            // The owner has removed the file in between.
            Err(Errno::NOENT) => return Ok(()),
            _ => return Err(Error::at("bind", self.path)(Errno::ADDRINUSE)),
        }
        unlink(self.directory.as_fd(), &self.name).map_err(Error::at("unlink", self.path))
    }

    /// Waits until no other process of this user removes a file here.
    fn lock(&self) -> Result<RemovalLock<'_>> {
        let name = [b".", self.name.to_bytes(), b".thalweg-lock"].concat();
        let path = self.path.with_file_name(OsStr::from_bytes(&name));
        let name = CString::new(name).map_err(|_| Error::at("bind", self.path)(Errno::INVAL))?;
        let deadline = Deadline::after(HANG);
        while !deadline.passed() {
            let file =
                lock_file(&path).map_err(|error| Error::NotPermitted { why: error.to_string() })?;
            let Some(file) = file else {
                let lock = shown(&path);
                let why =
                    format!("the lock file '{lock}' is not a file of this user; use another path");
                return Err(Error::NotPermitted { why });
            };
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => thread::sleep(RETRY_PAUSE),
                Err(Errno::INTR) => {}
                // A file system without locks counts as locked, because the other checks still apply. If the name leads to
                // another file, the previous owner of the lock has removed this one, and a third process may own the other.
                _ if is_named(&file, self.directory.as_fd(), &name).unwrap_or(false) => {
                    return Ok(RemovalLock { place: self, name, _file: file });
                }
                _ => {}
            }
        }
        Err(Error::at("flock", &path)(Errno::WOULDBLOCK))
    }
}

/// The lock for the removal of a stale file. Dropping it removes the lock file, and then unlocks.
struct RemovalLock<'p> {
    place: &'p SocketPlace<'p>,
    name: CString,
    _file: OwnedFd,
}

impl Drop for RemovalLock<'_> {
    fn drop(&mut self) {
        self.place.remove(&self.name);
    }
}

/// Returns a unique name. It is short, regardless of the final name.
pub(super) fn fresh_name() -> CString {
    unique(c"socket")
}

//! The side that waits to be found. Its socket file goes when it goes; one left by a process that
//! was killed is replaced by the next, but never one at which a process still listens.

use super::{Address, Admit, Link, left, wait};
use crate::error::{Error, Result};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thalweg_sys::{Errno, io, peer};

/// A socket that accepts links. Dropping it removes its file, unless another took the name.
#[derive(Debug)]
pub struct Listener {
    pub(super) socket: OwnedFd,
    path: PathBuf,
    /// The socket file. Held open, so that its inode number is not given to another file and it
    /// is known again.
    file: OwnedFd,
    /// Not a forked child of the process that bound it.
    owner: u32,
    admit: Admit,
}

impl Listener {
    /// How long one caller may take over its first words while others may be waiting behind it. Who
    /// takes longer is hung up on and not declared dead: it can call again.
    pub const PATIENCE: Duration = Duration::from_secs(5);

    /// Listens at `address` for processes of our own user. EADDRINUSE in [`Error::Meeting`] if
    /// a process listens there already, or if something else than a socket has the name.
    pub fn bind(address: &Address) -> Result<Self> {
        Self::bind_with(address, Admit::SameUser)
    }

    /// As [`Listener::bind`], for peers of other users.
    pub fn bind_with(address: &Address, admit: Admit) -> Result<Self> {
        let path = address.path().to_owned();
        let lock = lock_directory_of(&path)?;
        let socket = match peer::listen(&path) {
            Err(Errno::ADDRINUSE) if is_stale(&path) => {
                rustix::fs::unlink(&path).map_err(Error::at("unlink", &path))?;
                peer::listen(&path)
            }
            answer => answer,
        };
        let socket = socket.map_err(Error::at("bind", &path))?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(&path, flags, Mode::empty());
        let file = file.map_err(Error::at("open", &path))?;
        drop(lock);
        Ok(Self { socket, path, file, owner: std::process::id(), admit })
    }

    /// Waits for the next process. [`Error::NotPermitted`] if it is of a user who is not admitted:
    /// its link is closed, and the next can be waited for.
    pub fn accept(&self) -> Result<Link> {
        self.accept_until(None)
    }

    /// As [`Listener::accept`], for no longer than `deadline`; `None` is for ever.
    pub fn accept_until(&self, deadline: Option<Instant>) -> Result<Link> {
        loop {
            match peer::accept(&self.socket) {
                Ok(socket) => return Link::over(socket, self.admit),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => wait(io::wait_readable(&self.socket, left(deadline)))?,
                Err(errno) => return Err(Error::System { call: "accept", errno }),
            }
        }
    }
}

impl AsFd for Listener {
    /// Readable when a process waits to be accepted.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let ours = rustix::fs::fstat(&self.file).map(|known| (known.st_dev, known.st_ino));
        let named = rustix::fs::lstat(&self.path).map(|known| (known.st_dev, known.st_ino));
        if self.owner == std::process::id() && ours.is_ok() && ours == named {
            let _ = rustix::fs::unlink(&self.path);
        }
    }
}

/// A socket at which no process listens.
fn is_stale(path: &Path) -> bool {
    let Ok(known) = rustix::fs::lstat(path) else { return false };
    FileType::from_raw_mode(known.st_mode) == FileType::Socket && peer::is_bound(path) == Ok(false)
}

/// Two processes that both find a stale socket must not remove each other's fresh one. The lock is
/// held for a moment only, so whoever holds it for long is doing something else: say so.
pub(super) fn lock_directory_of(path: &Path) -> Result<OwnedFd> {
    const TRIES: u32 = 200;
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
    let opened = rustix::fs::open(directory, flags, Mode::empty());
    let opened = opened.map_err(Error::at("open", directory))?;
    for _ in 0..TRIES {
        match rustix::fs::flock(&opened, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(opened),
            Err(Errno::AGAIN | Errno::INTR) => std::thread::sleep(Duration::from_millis(10)),
            Err(errno) => return Err(Error::at("flock", directory)(errno)),
        }
    }
    let why = format!("another process keeps {} locked", directory.display());
    Err(Error::NotPermitted { why })
}

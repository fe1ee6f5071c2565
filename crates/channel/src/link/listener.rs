//! The listening side of a link. A new listener replaces the socket file of a killed process, but never that of a
//! process that still listens.

use super::{
    Address, Admit, Link, left,
    place::{SocketPlace, fresh_name},
    wait,
};
use crate::error::{Error, Result};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::Mode;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use thalweg_sys::{Errno, io, peer};

/// A socket that accepts links. Dropping it removes its file, unless another process has replaced the file.
#[derive(Debug)]
pub struct Listener {
    pub(super) socket: OwnedFd,
    path: PathBuf,
    /// The socket file. It stays open so that its inode number cannot be reused. When the listener is dropped, the
    /// number shows whether the path still refers to this file.
    file: OwnedFd,
    /// Id of the process that bound the socket. Only this process removes the file, and a forked child does not.
    owner: u32,
    admit: Admit,
}

impl Listener {
    /// Time limit for the first messages of a connecting process. It is needed because other processes may be waiting
    /// to connect. A slower process is disconnected, but it can connect again.
    pub const PATIENCE: Duration = Duration::from_secs(5);

    /// Listens at `address` for processes of this user. Returns [`Error::Meeting`] with EADDRINUSE if a process already
    /// listens there, or if the existing entry is not a socket. Returns [`Error::NotPermitted`] if the existing entry
    /// belongs to another user.
    pub fn bind(address: &Address) -> Result<Self> {
        Self::bind_with(address, Admit::SameUser)
    }

    /// Like [`Listener::bind`], with a choice of admitted users.
    pub fn bind_with(address: &Address, admit: Admit) -> Result<Self> {
        let path = address.path().to_owned();
        let mode = match admit {
            Admit::SameUser => Mode::RUSR | Mode::WUSR,
            Admit::User(_) | Admit::Anyone => Mode::RWXU | Mode::RWXG | Mode::RWXO,
        };
        let place = SocketPlace::of(&path)?;
        let fresh = fresh_name();
        let socket = place.listen(&fresh, mode)?;
        let file = place.name(&fresh).inspect_err(|_| place.remove(&fresh))?;
        Ok(Self { socket, path, file, owner: std::process::id(), admit })
    }

    /// Waits for the next process that connects. If it belongs to a user that is not admitted, closes its link and
    /// returns [`Error::NotPermitted`]. The caller can then accept the next process.
    pub fn accept(&self) -> Result<Link> {
        self.accept_until(None)
    }

    /// Like [`Listener::accept`], but waits until `deadline` at most; `None` waits without limit.
    pub fn accept_until(&self, deadline: Option<Instant>) -> Result<Link> {
        loop {
            match peer::accept(&self.socket) {
                Ok(socket) => return Link::joined(socket, self.admit),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => wait(io::wait_readable(&self.socket, left(deadline)))?,
                Err(errno) => return Err(Error::System { call: "accept", errno }),
            }
        }
    }
}

impl AsFd for Listener {
    /// Returns the descriptor to poll. It is readable while a process waits to be accepted.
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

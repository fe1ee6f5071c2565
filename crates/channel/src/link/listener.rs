//! The side that waits to be found. Its socket file goes when it goes; one left by a process that
//! was killed is replaced by the next, but never one at which a process still listens.

use super::{
    Address, Admit, Link, left,
    place::{Place, fresh_name},
    wait,
};
use crate::error::{Error, Result};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::Mode;
use std::path::PathBuf;
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
    /// a process listens there already, or if something else than a socket has the name;
    /// [`Error::NotPermitted`] if that belongs to another user.
    pub fn bind(address: &Address) -> Result<Self> {
        Self::bind_with(address, Admit::SameUser)
    }

    /// As [`Listener::bind`], for peers of other users.
    pub fn bind_with(address: &Address, admit: Admit) -> Result<Self> {
        let path = address.path().to_owned();
        let mode = match admit {
            Admit::SameUser => Mode::RUSR | Mode::WUSR,
            Admit::User(_) | Admit::Anyone => Mode::RWXU | Mode::RWXG | Mode::RWXO,
        };
        let place = Place::of(&path)?;
        let fresh = fresh_name();
        let socket = place.listen(&fresh, mode)?;
        let file = place.name(&fresh).inspect_err(|_| place.remove(&fresh))?;
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
                Ok(socket) => return Link::joined(socket, self.admit),
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

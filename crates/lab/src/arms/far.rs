//! The processes at the other end of a pipe or socket, and how an arm (a compared variant) connects
//! to them.

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, mknodat, open},
    net::sockopt::socket_peercred,
};
use std::{
    net::TcpStream,
    os::{
        fd::OwnedFd,
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixStream},
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};
use thalweg_core::Unfit;
use thalweg_measure::arms::far::Far;
use thalweg_sys::{Errno, pipe};

pub(crate) mod feeder;
pub(crate) mod receiver;

/// A FIFO that both sides can open without blocking. Its name is removed as soon as both have
/// opened it.
pub(super) struct Fifo {
    path: PathBuf,
    // Keeps both ends open until each side has opened its own.
    _both: OwnedFd,
}

impl Fifo {
    /// Creates a FIFO in `folder` with this capacity, or with the kernel's default.
    pub fn new(folder: &Path, capacity: Option<u64>) -> Result<Self, Unfit> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("fifo-{}-{number}", std::process::id()));
        let failed = |e: Errno| Unfit::because(format!("FIFO {}: {e}", path.display()));
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(CWD, &path, FileType::Fifo, mode, 0).map_err(failed)?;
        let both = open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
        if let Some(wished) = capacity {
            let size = pipe::set_size(&both, usize::try_from(wished).unwrap_or(usize::MAX));
            size.map_err(|e| {
                Unfit::because(format!("cannot create a pipe of {wished} bytes: {e}"))
            })?;
        }
        Ok(Self { path, _both: both })
    }

    /// Returns the path for the helper.
    pub fn path(&self) -> Result<&str, Unfit> {
        let text = self.path.to_str();
        text.ok_or_else(|| {
            Unfit::because(format!("{}: the path is not UTF-8", self.path.display()))
        })
    }

    /// Opens our end. Call it only after the helper has opened its own end: it drops the descriptor for reading and
    /// writing that kept both ends of the FIFO open.
    pub fn end(self, flags: OFlags) -> Result<OwnedFd, Unfit> {
        let end = open(&self.path, flags | OFlags::CLOEXEC, Mode::empty());
        end.map_err(|e| Unfit::because(format!("FIFO {}: {e}", self.path.display())))
    }
}

impl Drop for Fifo {
    fn drop(&mut self) {
        // If this fails, the FIFO is removed with its directory.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Connects to a receiver that listens on loopback, and sends our own address to the receiver.
pub(super) fn connect_tcp(far: &mut Far) -> Result<TcpStream, Unfit> {
    let line = far.hear()?;
    let address = line.strip_prefix("at ").unwrap_or_default();
    let failed = |e: std::io::Error| Unfit::because(format!("cannot connect over loopback: {e}"));
    let stream = TcpStream::connect(address).map_err(failed)?;
    far.say(&format!("from {}", stream.local_addr().map_err(failed)?))?;
    Ok(stream)
}

/// Connects to a receiver's socket in the abstract namespace. Returns an error if another process
/// owns the socket.
pub(super) fn connect_unix(far: &mut Far) -> Result<UnixStream, Unfit> {
    let line = far.hear()?;
    let name = line.strip_prefix("at ").unwrap_or_default();
    let failed =
        |e: std::io::Error| Unfit::because(format!("cannot connect to the unix socket: {e}"));
    let address = SocketAddr::from_abstract_name(name).map_err(failed)?;
    let stream = UnixStream::connect_addr(&address).map_err(failed)?;
    let peer = socket_peercred(&stream).map_err(|e| failed(e.into()))?;
    if peer.pid.as_raw_nonzero().get().unsigned_abs() != far.id() {
        return Err(Unfit::because("another process than the helper answered at the unix socket"));
    }
    far.say("from us")?;
    Ok(stream)
}

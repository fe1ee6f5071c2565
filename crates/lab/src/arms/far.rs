//! The client side of a helper process: starts it, communicates with it, and connects to it. If a helper dies or
//! hangs, the caller gets an error with the reason instead of waiting forever.

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
    time::{Duration, Instant},
};
use thalweg_core::Unfit;
use thalweg_sys::{Errno, pipe, usage::Usage};

pub(crate) mod feeder;
pub(crate) mod receiver;

use crate::measure::{
    line::spent,
    process::{self, Heard, Manner, Process},
};

/// Timeout for any reaction of a helper process.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// A helper process; dropping it ends the process.
pub(super) struct Far {
    kind: &'static str,
    process: Process,
}

impl Far {
    /// Starts a helper of this kind.
    pub fn start(program: &Path, kind: &'static str, arguments: &[&str]) -> Result<Self, Unfit> {
        let mut command = process::helper(program, kind);
        command.args(arguments);
        let failed = |e| Unfit::because(format!("helper {kind} by {}: {e}", program.display()));
        Ok(Self { kind, process: Process::start(command, Manner::HELPER).map_err(failed)? })
    }

    pub fn say(&mut self, line: &str) -> Result<(), Unfit> {
        self.process.say(line).map_err(|e| self.odd(&format!("nothing and cannot be told: {e}")))
    }

    /// Reads the next line. A line `no REASON` becomes an error.
    pub fn hear(&mut self) -> Result<String, Unfit> {
        match self.process.hear(Instant::now() + PATIENCE) {
            Ok(Heard::Line(line)) => match line.strip_prefix("no ") {
                Some(reason) => Err(Unfit::because(format!("the receiver: {reason}"))),
                None => Ok(line),
            },
            Ok(Heard::Silence) => Err(self.odd(&format!("nothing for {PATIENCE:?}"))),
            Ok(Heard::End) => Err(self.gone()),
            Err(reason) => Err(self.odd(&format!("what is no answer: {reason}"))),
        }
    }

    pub fn hear_only(&mut self, expected: &str) -> Result<(), Unfit> {
        match self.hear()? {
            line if line == expected => Ok(()),
            line => Err(self.odd(&format!("{line:?} in place of {expected:?}"))),
        }
    }

    /// Sends a command, and returns when the helper is about to start it.
    pub fn begin(&mut self, line: &str) -> Result<(), Unfit> {
        self.say(line)?;
        self.hear_only("go")
    }

    /// Waits until the command is done. Returns its resource usage and number of system calls.
    pub fn spent(&mut self) -> Result<(Usage, u64), Unfit> {
        let line = self.hear()?;
        spent(&line).ok_or_else(|| self.odd(&format!("{line:?}")))
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns the reason if the helper has exited or exits within half a second; explains why a write to it failed.
    pub fn last_words(&mut self) -> Option<Unfit> {
        self.process.wait(Duration::from_millis(500)).map(|_| self.gone())
    }

    pub fn odd(&self, what: &str) -> Unfit {
        Unfit::because(format!("the {} (a process of ours) said {what}", self.kind))
    }

    /// Returns how the helper exited, with the end of its standard error if it is not empty.
    fn gone(&mut self) -> Unfit {
        let (how, words) = (self.process.ended(), self.process.last_words());
        let words = if words.is_empty() { String::new() } else { format!(": {words}") };
        Unfit::because(format!("the {} (a process of ours) is gone: {how}{words}", self.kind))
    }
}

/// A FIFO that both sides can open without blocking. Its name is removed early.
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
            size.map_err(|e| Unfit::because(format!("a pipe of {wished} bytes: {e}")))?;
        }
        Ok(Self { path, _both: both })
    }

    /// Returns the path for the helper.
    pub fn path(&self) -> Result<&str, Unfit> {
        let text = self.path.to_str();
        text.ok_or_else(|| Unfit::because(format!("{}: not UTF-8", self.path.display())))
    }

    /// Returns our end alone, after the helper has opened its own.
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

/// Connects to a receiver that listens on loopback, and sends it our own address.
pub(super) fn connect_tcp(far: &mut Far) -> Result<TcpStream, Unfit> {
    let line = far.hear()?;
    let address = line.strip_prefix("at ").unwrap_or_default();
    let failed = |e: std::io::Error| Unfit::because(format!("loopback connection: {e}"));
    let stream = TcpStream::connect(address).map_err(failed)?;
    far.say(&format!("from {}", stream.local_addr().map_err(failed)?))?;
    Ok(stream)
}

/// Connects to a receiver in the abstract namespace, and to no other process.
pub(super) fn connect_unix(far: &mut Far) -> Result<UnixStream, Unfit> {
    let line = far.hear()?;
    let name = line.strip_prefix("at ").unwrap_or_default();
    let failed = |e: std::io::Error| Unfit::because(format!("unix socket: {e}"));
    let address = SocketAddr::from_abstract_name(name).map_err(failed)?;
    let stream = UnixStream::connect_addr(&address).map_err(failed)?;
    let peer = socket_peercred(&stream).map_err(|e| failed(e.into()))?;
    if peer.pid.as_raw_nonzero().get().unsigned_abs() != far.id() {
        return Err(Unfit::because("unix socket: another process answered"));
    }
    far.say("from us")?;
    Ok(stream)
}

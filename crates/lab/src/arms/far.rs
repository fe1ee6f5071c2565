//! The near side of a helper process: starts it, talks to it, and connects to it. A helper that
//! dies or falls silent is an answer with its reason, never a wait without end.

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, mknodat, open},
    net::sockopt::socket_peercred,
};
use std::{
    io::{Read, Write},
    net::TcpStream,
    os::{
        fd::OwnedFd,
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixStream},
    },
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Stdio},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
use thalweg_core::Unfit;
use thalweg_sys::{Errno, io as call, pipe, usage::Usage};

use super::exactly::PATIENCE;
use crate::helper::{command, spent};

/// A helper process. It ends when this is dropped.
pub(super) struct Far {
    kind: &'static str,
    child: Child,
    to: Option<ChildStdin>,
    from: ChildStdout,
    heard: Vec<u8>,
}

impl Far {
    /// Starts a helper of this kind.
    pub fn start(program: &Path, kind: &'static str, arguments: &[&str]) -> Result<Self, Unfit> {
        let mut command = command(program, kind);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let failed = |e| Unfit::because(format!("helper {kind} by {}: {e}", program.display()));
        let mut child = command.spawn().map_err(failed)?;
        let (to, from) = (child.stdin.take(), child.stdout.take());
        let Some(from) = from else {
            return Err(Unfit::because(format!("helper {kind} has no stdout")));
        };
        Ok(Self { kind, child, to, from, heard: Vec::new() })
    }

    /// Says a line to it.
    pub fn say(&mut self, line: &str) -> Result<(), Unfit> {
        let to = self.to.as_mut().map(|to| to.write_all(format!("{line}\n").as_bytes()));
        match to {
            Some(Ok(())) => Ok(()),
            _ => Err(self.gone()),
        }
    }

    /// The next line it says.
    pub fn hear(&mut self) -> Result<String, Unfit> {
        loop {
            if let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') {
                let line = self.heard.drain(..=end).take(end).collect();
                return String::from_utf8(line).map_err(|_| self.odd("bytes that are no text"));
            }
            match call::wait_readable(&self.from, Some(PATIENCE)) {
                Ok(true) => {}
                Err(Errno::INTR) => continue,
                _ => return Err(self.odd(&format!("nothing for {PATIENCE:?}"))),
            }
            let mut some = [0; 256];
            match call::read(&self.from, &mut some) {
                Ok(0) => return Err(self.gone()),
                Ok(got) => self.heard.extend_from_slice(&some[..got]),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.odd(&format!("{errno}"))),
            }
        }
    }

    /// Hears exactly this.
    pub fn hear_only(&mut self, expected: &str) -> Result<(), Unfit> {
        match self.hear()? {
            line if line == expected => Ok(()),
            line => Err(self.odd(&format!("{line:?} in place of {expected:?}"))),
        }
    }

    /// Tells it to do something, and returns once it is about to.
    pub fn begin(&mut self, line: &str) -> Result<(), Unfit> {
        self.say(line)?;
        self.hear_only("go")
    }

    /// What it used for what it was told, and the calls it made, once it is done.
    pub fn spent(&mut self) -> Result<(Usage, u64), Unfit> {
        let line = self.hear()?;
        spent(&line).ok_or_else(|| self.odd(&format!("{line:?}")))
    }

    /// Its process number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its last words, if it has ended or does so in the next moment: why a write to it failed.
    pub fn last_words(&mut self) -> Option<Unfit> {
        for _ in 0..50 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return Some(self.gone());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        None
    }

    fn odd(&self, what: &str) -> Unfit {
        Unfit::because(format!("the {} (a process of ours) said {what}", self.kind))
    }

    /// It has ended, or is made to; its own words if it left any.
    fn gone(&mut self) -> Unfit {
        self.to = None;
        let _ = self.child.kill();
        let status = self.child.wait().map_or_else(|e| e.to_string(), |status| status.to_string());
        let mut words = String::new();
        if let Some(stderr) = &mut self.child.stderr {
            // It is dead: there is an end to what it has said.
            let _ = stderr.take(4096).read_to_string(&mut words);
        }
        let words = words.trim();
        let words = if words.is_empty() { String::new() } else { format!(": {words}") };
        Unfit::because(format!("the {} (a process of ours) ended: {status}{words}", self.kind))
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.to = None;
        // It may be waiting for bytes that never come.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A FIFO that both sides can open without waiting for each other; its name goes at once.
pub(super) struct Fifo {
    path: PathBuf,
    // Keeps both ends open until each side has its own.
    _both: OwnedFd,
}

impl Fifo {
    /// In `folder`, of this capacity, or of the kernel's own.
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

    /// The name to give to the helper.
    pub fn path(&self) -> Result<&str, Unfit> {
        let text = self.path.to_str();
        text.ok_or_else(|| Unfit::because(format!("{}: not UTF-8", self.path.display())))
    }

    /// Our end alone, once the helper has opened its own.
    pub fn end(self, flags: OFlags) -> Result<OwnedFd, Unfit> {
        let end = open(&self.path, flags | OFlags::CLOEXEC, Mode::empty());
        end.map_err(|e| Unfit::because(format!("FIFO {}: {e}", self.path.display())))
    }
}

impl Drop for Fifo {
    fn drop(&mut self) {
        // It goes with its folder otherwise.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Connects to a receiver that listens on loopback, and tells it who comes.
pub(super) fn connect_tcp(far: &mut Far) -> Result<TcpStream, Unfit> {
    let line = far.hear()?;
    let address = line.strip_prefix("at ").unwrap_or_default();
    let failed = |e: std::io::Error| Unfit::because(format!("loopback connection: {e}"));
    let stream = TcpStream::connect(address).map_err(failed)?;
    far.say(&format!("from {}", stream.local_addr().map_err(failed)?))?;
    Ok(stream)
}

/// Connects to a receiver that listens in the abstract namespace, and to no other process.
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

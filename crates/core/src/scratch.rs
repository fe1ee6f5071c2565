//! Tiny real ends to try a mechanism on: files that have no name, pipes, sockets, devices.
//! They vanish when dropped; probing leaves nothing behind.

use rustix::{
    fs::{AtFlags, CWD, MemfdFlags, Mode, OFlags, memfd_create, openat, unlinkat},
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
    pipe::{PipeFlags, pipe_with},
};
use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};
use thalweg_sys::{Errno, io};

use crate::{End, Guarantees, Kind, Sink, Source, Transfer, Unfit, error::errno_name};

/// Where scratch files are made.
#[derive(Clone, Debug)]
pub struct Site {
    /// Folder of source files.
    pub source: PathBuf,
    /// Folder of sink files.
    pub sink: PathBuf,
    /// The source file is one in memory, and lies in no folder.
    pub memfd: bool,
    /// Where the pair has a socket; left out, a kind that the mechanism takes.
    pub sockets: Option<Sockets>,
}

impl Site {
    /// Both ends in one folder.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        let source = folder.into();
        Self::between(source.clone(), source)
    }

    /// The ends in two folders.
    pub fn between(source: PathBuf, sink: PathBuf) -> Self {
        Self { source, sink, memfd: false, sockets: None }
    }
}

/// Which sockets to make where a pair asks for a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sockets {
    /// A pair of unix stream sockets.
    Unix,
    /// A TCP connection over loopback.
    Tcp,
}

/// Two ends, and what is needed to fill the one and to look at the other.
#[derive(Debug)]
pub struct Scratch {
    source: Near,
    sink: Near,
}

#[derive(Debug)]
struct Near {
    kind: Kind,
    memory: Vec<u8>,
    // The descriptor handed to the mechanism; None for memory.
    fd: Option<OwnedFd>,
    // The other side of a pipe or a socket.
    far: Option<OwnedFd>,
}

/// `step: EACCES (Permission denied)`.
fn unfit(step: &str, errno: Errno) -> Unfit {
    Unfit { reason: format!("{step}: {}", errno_name(errno)), errno: Some(errno) }
}

impl Scratch {
    /// A source holding `bytes` (`/dev/zero` gives zeros whatever they are) and an empty sink with
    /// room for as many.
    pub fn new(
        (source, sink): (Kind, Kind),
        bytes: &[u8],
        site: &Site,
        sockets: Sockets,
    ) -> Result<Self, Unfit> {
        let mut near_source = match source {
            Kind::File if site.memfd => Near::memfd()?,
            _ => Near::source(source, &site.source, sockets)?,
        };
        near_source.fill(bytes)?;
        Ok(Self { source: near_source, sink: Near::sink(sink, &site.sink, sockets, bytes.len())? })
    }

    /// The transfer of `len` bytes between the two ends.
    pub fn transfer(&mut self, len: u64, needs: Guarantees) -> Result<Transfer<'_>, Errno> {
        let source = match &self.source.fd {
            None => Source::Memory(&self.source.memory),
            Some(fd) => Source::Fd(End::from_start(fd.as_fd())?),
        };
        let sink = match &self.sink.fd {
            None => Sink::Memory(&mut self.sink.memory),
            Some(fd) => Sink::Fd(End::from_start(fd.as_fd())?),
        };
        Ok(Transfer { source, sink, len: Some(len), needs })
    }

    /// Writes over the source in place: memory and files only, others have been consumed.
    pub fn overwrite_source(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        match &self.source.fd {
            None => self.source.memory[..bytes.len()].copy_from_slice(bytes),
            Some(fd) => {
                io::pwrite(fd, bytes, 0)?;
            }
        }
        Ok(())
    }

    /// What arrived in the sink, up to `len` bytes; `None` where there is nothing to look at (`/dev/null`).
    pub fn arrived(&mut self, len: usize) -> Result<Option<Vec<u8>>, Errno> {
        let mut bytes = vec![0; len];
        let mut filled = 0;
        let fd = match (self.sink.kind, &self.sink.fd, &self.sink.far) {
            (Kind::Null | Kind::Device, ..) => return Ok(None),
            (_, None, _) => return Ok(Some(self.sink.memory.clone())),
            (_, _, Some(far)) => far.as_fd(),
            (_, Some(near), None) => near.as_fd(),
        };
        while filled < len {
            let got = match self.sink.kind {
                Kind::File => io::pread(fd, &mut bytes[filled..], filled as u64)?,
                _ if io::wait_readable(fd, Some(std::time::Duration::from_secs(2)))? => {
                    io::read(fd, &mut bytes[filled..])?
                }
                _ => 0,
            };
            if got == 0 {
                break;
            }
            filled += got;
        }
        bytes.truncate(filled);
        Ok(Some(bytes))
    }

    /// Whether the bytes that arrive can be known beforehand (a device gives its own).
    pub fn source_is_ours(&self) -> bool {
        !matches!(self.source.kind, Kind::Device | Kind::Null)
    }
}

impl Near {
    fn source(kind: Kind, folder: &Path, sockets: Sockets) -> Result<Self, Unfit> {
        match kind {
            Kind::Device => Self::device("/dev/zero", OFlags::RDONLY, kind),
            Kind::Null => Self::device("/dev/null", OFlags::RDONLY, kind),
            _ => Self::new(kind, folder, sockets, true),
        }
    }

    fn sink(kind: Kind, folder: &Path, sockets: Sockets, room: usize) -> Result<Self, Unfit> {
        match kind {
            Kind::Null => Self::device("/dev/null", OFlags::WRONLY, kind),
            // Every device takes bytes its own way; the pseudo terminal of a test is no model.
            Kind::Device => Err(Unfit::because("no harmless device to write to")),
            Kind::Memory => {
                let memory = vec![0; room];
                Ok(Self { kind, memory, fd: None, far: None })
            }
            _ => Self::new(kind, folder, sockets, false),
        }
    }

    fn new(kind: Kind, folder: &Path, sockets: Sockets, source: bool) -> Result<Self, Unfit> {
        let (reader, writer) = match kind {
            Kind::File => {
                let file = nameless_file(folder)
                    .map_err(|e| unfit(&format!("scratch file in {}", folder.display()), e))?;
                return Ok(Self { kind, memory: Vec::new(), fd: Some(file), far: None });
            }
            Kind::Pipe | Kind::Socket => stream(kind, sockets).map_err(|e| Unfit {
                reason: format!("making a {kind}: {e}"),
                errno: Errno::from_io_error(&e),
            })?,
            Kind::Memory | Kind::Device | Kind::Null => {
                return Ok(Self { kind, memory: Vec::new(), fd: None, far: None });
            }
        };
        let (near, far) = if source { (reader, writer) } else { (writer, reader) };
        Ok(Self { kind, memory: Vec::new(), fd: Some(near), far: Some(far) })
    }

    fn memfd() -> Result<Self, Unfit> {
        let made = memfd_create("thalweg-probe", MemfdFlags::CLOEXEC);
        let fd = made.map_err(|e| unfit("memfd_create", e))?;
        Ok(Self { kind: Kind::File, memory: Vec::new(), fd: Some(fd), far: None })
    }

    fn device(path: &str, flags: OFlags, kind: Kind) -> Result<Self, Unfit> {
        let fd = openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty());
        let fd = fd.map_err(|e| unfit(path, e))?;
        Ok(Self { kind, memory: Vec::new(), fd: Some(fd), far: None })
    }

    /// Puts the bytes in; a pipe's or socket's writing side is closed, so that the source ends.
    fn fill(&mut self, bytes: &[u8]) -> Result<(), Unfit> {
        let to: BorrowedFd<'_> = match (self.kind, &self.fd, &self.far) {
            (Kind::Memory, ..) => {
                bytes.clone_into(&mut self.memory);
                return Ok(());
            }
            (Kind::File, Some(near), _) => near.as_fd(),
            (Kind::Pipe | Kind::Socket, _, Some(far)) => far.as_fd(),
            _ => return Ok(()),
        };
        let mut left = bytes;
        while !left.is_empty() {
            let put = io::write(to, left).map_err(|e| unfit("write to a scratch source", e))?;
            left = &left[put..];
        }
        if self.kind != Kind::File {
            self.far = None;
        }
        Ok(())
    }
}

/// A file for reading and writing that has no name: `O_TMPFILE`, or one unlinked at once.
fn nameless_file(folder: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    match openat(CWD, folder, flags | OFlags::TMPFILE, mode) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {}
        answer => return answer,
    }
    let name = folder.join(format!(".thalweg-probe-{}", std::process::id()));
    let file = openat(CWD, &name, flags | OFlags::CREATE | OFlags::EXCL, mode)?;
    unlinkat(CWD, &name, AtFlags::empty())?;
    Ok(file)
}

/// The reading and the writing end of a socket, or of a pipe where it is of any other kind.
pub fn stream(kind: Kind, sockets: Sockets) -> std::io::Result<(OwnedFd, OwnedFd)> {
    match (kind, sockets) {
        (Kind::Socket, Sockets::Tcp) => tcp_pair(),
        (Kind::Socket, Sockets::Unix) => {
            let (stream, flags) = (SocketType::STREAM, SocketFlags::CLOEXEC);
            Ok(socketpair(AddressFamily::UNIX, stream, flags, None)?)
        }
        _ => Ok(pipe_with(PipeFlags::CLOEXEC)?),
    }
}

/// Two ends of one TCP connection over loopback: (reading, writing).
fn tcp_pair() -> std::io::Result<(OwnedFd, OwnedFd)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut near = TcpStream::connect(listener.local_addr()?)?;
    // Another process that connects in between is not our other side.
    loop {
        let (mut far, peer) = listener.accept()?;
        if peer == near.local_addr()? {
            near.write_all(b"!")?;
            far.read_exact(&mut [0])?;
            // As servers do: else the last bytes of a transfer wait for an acknowledgement that the
            // other side delays.
            near.set_nodelay(true)?;
            far.set_nodelay(true)?;
            return Ok((near.into(), far.into()));
        }
    }
}

//! Small real endpoints on which a mechanism is tried: nameless files, pipes, sockets and devices. They vanish when
//! dropped, so that probing leaves nothing behind.

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

/// The location of scratch files.
#[derive(Clone, Debug)]
pub struct ScratchSite {
    /// Directory of source files.
    pub source: PathBuf,
    /// Directory of sink files.
    pub sink: PathBuf,
    /// `true` if the source file is a memfd, which is in no directory.
    pub memfd: bool,
    /// The kind of sockets to create. `None`: a kind that the mechanism accepts.
    pub sockets: Option<Sockets>,
}

impl ScratchSite {
    /// Creates a site with both endpoints in one directory.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        let source = folder.into();
        Self::between(source.clone(), source)
    }

    /// Creates a site with the endpoints in two directories.
    pub fn between(source: PathBuf, sink: PathBuf) -> Self {
        Self { source, sink, memfd: false, sockets: None }
    }

    /// Returns the reason why no test can use a file in the directory of sources.
    pub fn obstacle(&self) -> Option<Unfit> {
        Scratch::new(Kind::File, Kind::Memory, &[1; 4096], self, Sockets::Unix).err()
    }
}

/// The kind of sockets for a pair with a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sockets {
    /// A pair of unix stream sockets.
    Unix,
    /// A TCP connection over loopback.
    Tcp,
}

/// Two endpoints, and the other sides of streams, which fill the source and read the sink.
#[derive(Debug)]
pub struct Scratch {
    source: Near,
    sink: Near,
}

#[derive(Debug)]
struct Near {
    kind: Kind,
    memory: Vec<u8>,
    // The descriptor for the mechanism; `None` for memory.
    fd: Option<OwnedFd>,
    // The other side of a pipe or a socket.
    far: Option<OwnedFd>,
}

/// Creates a reason of the form `step: EACCES (Permission denied)`.
fn unfit(step: &str, errno: Errno) -> Unfit {
    Unfit { reason: format!("{step}: {}", errno_name(errno)), errno: Some(errno) }
}

impl Scratch {
    /// Creates a source that holds `bytes`, and an empty sink with room for all of them. If the source is a device, it
    /// is `/dev/zero` and holds zeros instead.
    pub fn new(
        source: Kind,
        sink: Kind,
        bytes: &[u8],
        site: &ScratchSite,
        sockets: Sockets,
    ) -> Result<Self, Unfit> {
        let mut near_source = match source {
            Kind::File if site.memfd => Near::memfd()?,
            _ => Near::source(source, &site.source, sockets)?,
        };
        near_source.fill(bytes)?;
        Ok(Self { source: near_source, sink: Near::sink(sink, &site.sink, sockets, bytes.len())? })
    }

    /// Returns the transfer of `len` bytes between the two endpoints.
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

    /// Overwrites the source in place. Only for memory and files: the bytes of other sources were consumed.
    pub fn overwrite_source(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        match &self.source.fd {
            None => self.source.memory[..bytes.len()].copy_from_slice(bytes),
            Some(fd) => {
                io::pwrite(fd, bytes, 0)?;
            }
        }
        Ok(())
    }

    /// Returns the bytes that arrived in the sink, up to `len`; `None` if the sink cannot be read (`/dev/null`).
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

    /// Returns `true` if the source supplies the bytes passed to [`Self::new`]. A device supplies its own.
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
            // A test with a pseudo terminal would prove nothing about other devices.
            Kind::Device => Err(Unfit::because(
                "not tested, because a test on one device proves nothing about others",
            )),
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
                let file = nameless_file(folder).map_err(|e| {
                    unfit(&format!("cannot create a test file in {}", folder.display()), e)
                })?;
                return Ok(Self { kind, memory: Vec::new(), fd: Some(file), far: None });
            }
            Kind::Pipe | Kind::Socket => stream(kind, sockets).map_err(|e| Unfit {
                reason: format!("cannot create a {kind}: {e}"),
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

    /// Writes the bytes into the source. The writing side of a pipe or socket is closed, so that the source ends.
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
            let put = io::write(to, left).map_err(|e| unfit("cannot write the test data", e))?;
            left = &left[put..];
        }
        if self.kind != Kind::File {
            self.far = None;
        }
        Ok(())
    }
}

/// Creates a file without a name for reading and writing: with `O_TMPFILE`, or unlinked at once.
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

/// Returns the reading and the writing end of a socket. For any other kind, they are those of a pipe.
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

/// Returns both ends of a TCP connection over loopback: first the reading, then the writing end.
fn tcp_pair() -> std::io::Result<(OwnedFd, OwnedFd)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut near = TcpStream::connect(listener.local_addr()?)?;
    // Another process may connect first; its connection is not our peer.
    loop {
        let (mut far, peer) = listener.accept()?;
        if peer == near.local_addr()? {
            near.write_all(b"!")?;
            far.read_exact(&mut [0])?;
            // Servers set TCP_NODELAY too. Without it, the last bytes of a transfer wait for a delayed acknowledgement
            // from the other side.
            near.set_nodelay(true)?;
            far.set_nodelay(true)?;
            return Ok((near.into(), far.into()));
        }
    }
}

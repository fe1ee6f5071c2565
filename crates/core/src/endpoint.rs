//! The two endpoints of a transfer: memory, or an open file descriptor of a known kind.

use rustix::fs::{FileType, OFlags, Stat, fcntl_getfl, fstat};
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    os::fd::{AsFd, BorrowedFd},
};
use thalweg_sys::{Errno, io};

use crate::Guarantees;

/// The kind of an endpoint, as mechanisms distinguish it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A slice of this process's memory.
    Memory,
    /// A regular file or a memfd.
    File,
    /// An end of a pipe or a FIFO.
    Pipe,
    /// A connected stream socket.
    Socket,
    /// A character or block device, including terminals.
    Device,
    /// `/dev/null` as a sink: it accepts all bytes and discards them.
    Null,
}

impl Kind {
    /// All kinds, in the order of the manual.
    pub const ALL: [Self; 6] =
        [Self::Memory, Self::File, Self::Pipe, Self::Socket, Self::Device, Self::Null];

    /// Returns the lower-case name used in profiles and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::File => "file",
            Self::Pipe => "pipe",
            Self::Socket => "socket",
            Self::Device => "device",
            Self::Null => "null",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An open file descriptor as an endpoint of a transfer.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    /// The descriptor.
    pub fd: BorrowedFd<'a>,
    /// The kind of endpoint.
    pub kind: Kind,
    /// The offset of the next byte, for an endpoint that can be addressed by offset. Calls then
    /// neither use nor move the descriptor's own offset. `None` for streams, and for files opened
    /// with `O_APPEND`.
    pub at: Option<u64>,
}

impl<'a> End<'a> {
    /// Examines an open descriptor. A file or block device starts at the descriptor's own offset.
    pub fn of(fd: BorrowedFd<'a>) -> Result<Self, Errno> {
        let stat = fstat(fd)?;
        let kind = kind_of(&stat)?;
        let addressed = match kind {
            Kind::File => !fcntl_getfl(fd)?.contains(OFlags::APPEND),
            _ => FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice,
        };
        // Some files of /proc and /sys refuse to seek. They are treated as streams.
        let at = if addressed { rustix::fs::tell(fd).ok() } else { None };
        Ok(Self { fd, kind, at })
    }

    /// Examines an open descriptor. Calls use and advance the descriptor's own offset, because other processes may
    /// share it.
    pub fn inherited(fd: BorrowedFd<'a>) -> Result<Self, Errno> {
        Ok(Self { fd, kind: kind_of(&fstat(fd)?)?, at: None })
    }

    /// Examines an open descriptor. An endpoint that can be addressed by offset starts at offset 0.
    pub fn from_start(fd: BorrowedFd<'a>) -> Result<Self, Errno> {
        let end = Self::of(fd)?;
        Ok(Self { at: end.at.and(Some(0)), ..end })
    }

    /// Returns the endpoint with offset `at`.
    #[must_use]
    pub fn at(mut self, at: u64) -> Self {
        self.at = Some(at);
        self
    }

    /// Makes one `pread` or `read`, and advances `at` by the bytes read.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Errno> {
        let got = match self.at {
            Some(at) => io::pread(self.fd, buffer, at)?,
            None => io::read(self.fd, buffer)?,
        };
        self.forward(got as u64);
        Ok(got)
    }

    /// Makes one `pwrite` or `write`, and advances `at` by the bytes written.
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        let put = match self.at {
            Some(at) => io::pwrite(self.fd, bytes, at)?,
            None => io::write(self.fd, bytes)?,
        };
        self.forward(put as u64);
        Ok(put)
    }

    /// Returns the name of the call that [`read`](Self::read) makes.
    pub fn read_call(&self) -> &'static str {
        if self.at.is_some() { "pread" } else { "read" }
    }

    /// Returns the name of the call that [`write`](Self::write) makes.
    pub fn write_call(&self) -> &'static str {
        if self.at.is_some() { "pwrite" } else { "write" }
    }

    /// Advances the offset by `count` bytes that another call moved.
    pub fn forward(&mut self, count: u64) {
        if let Some(at) = &mut self.at {
            *at += count;
        }
    }
}

fn kind_of(stat: &Stat) -> Result<Kind, Errno> {
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::Fifo => Kind::Pipe,
        FileType::Socket => Kind::Socket,
        FileType::CharacterDevice if stat.st_rdev == NULL_DEVICE => Kind::Null,
        FileType::CharacterDevice | FileType::BlockDevice => Kind::Device,
        FileType::Directory => return Err(Errno::ISDIR),
        _ => Kind::File,
    })
}

// Major 1, minor 3 (Documentation/admin-guide/devices.txt), in the kernel's encoding.
const NULL_DEVICE: u64 = (1 << 8) | 3;

/// The source of a transfer.
#[derive(Debug)]
pub enum Source<'a> {
    /// Memory of this process.
    Memory(&'a [u8]),
    /// An open descriptor.
    Fd(End<'a>),
}

/// The sink of a transfer.
#[derive(Debug)]
pub enum Sink<'a> {
    /// Memory of this process. It is full when all its bytes are written.
    Memory(&'a mut [u8]),
    /// An open descriptor.
    Fd(End<'a>),
}

impl Source<'_> {
    /// Returns the kind of endpoint.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Memory(_) => Kind::Memory,
            Self::Fd(end) => end.kind,
        }
    }
}

impl Sink<'_> {
    /// Returns the kind of endpoint.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Memory(_) => Kind::Memory,
            Self::Fd(end) => end.kind,
        }
    }
}

/// A transfer of bytes from a source to a sink, with the required guarantees.
#[derive(Debug)]
pub struct Transfer<'a> {
    /// The source.
    pub source: Source<'a>,
    /// The sink.
    pub sink: Sink<'a>,
    /// The number of bytes to move. `None` means all bytes up to the end of the source.
    pub len: Option<u64>,
    /// The guarantees that must hold afterwards.
    pub needs: Guarantees,
}

impl<'a> Transfer<'a> {
    /// Creates a transfer of everything from one descriptor to another, with the default
    /// guarantees.
    pub fn between(source: &'a impl AsFd, sink: &'a impl AsFd) -> Result<Self, Errno> {
        let source = Source::Fd(End::of(source.as_fd())?);
        let sink = Sink::Fd(End::of(sink.as_fd())?);
        Ok(Self { source, sink, len: None, needs: Guarantees::default() })
    }

    /// Returns a transfer that borrows the endpoints of this one.
    pub fn reborrow(&mut self) -> Transfer<'_> {
        Transfer {
            source: match &self.source {
                Source::Memory(bytes) => Source::Memory(bytes),
                Source::Fd(end) => Source::Fd(*end),
            },
            sink: match &mut self.sink {
                Sink::Memory(bytes) => Sink::Memory(bytes),
                Sink::Fd(end) => Sink::Fd(*end),
            },
            len: self.len,
            needs: self.needs,
        }
    }

    /// Returns the rest of the transfer after `done` bytes, for a mechanism to open. Memory to be
    /// filled is moved into the result, so a later mechanism gets an empty sink.
    pub(crate) fn rest(&mut self, done: u64) -> Transfer<'a> {
        let forwarded = |end: &End<'a>| {
            let mut end = *end;
            end.forward(done);
            end
        };
        let start = usize::try_from(done).unwrap_or(usize::MAX);
        Transfer {
            source: match &self.source {
                Source::Memory(bytes) => Source::Memory(bytes.get(start..).unwrap_or_default()),
                Source::Fd(end) => Source::Fd(forwarded(end)),
            },
            sink: match &mut self.sink {
                Sink::Memory(bytes) => Sink::Memory(std::mem::take(bytes)),
                Sink::Fd(end) => Sink::Fd(forwarded(end)),
            },
            len: self.len.map(|len| len.saturating_sub(done)),
            needs: self.needs,
        }
    }

    /// Returns the largest number of bytes that this transfer can move: the requested length, or
    /// the size of a memory endpoint.
    pub fn limit(&self) -> Option<u64> {
        let memory = [
            if let Source::Memory(bytes) = &self.source { Some(bytes.len() as u64) } else { None },
            if let Sink::Memory(bytes) = &self.sink { Some(bytes.len() as u64) } else { None },
        ];
        memory.into_iter().flatten().chain(self.len).min()
    }
}

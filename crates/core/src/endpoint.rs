//! The two ends of a transfer: memory, or an open file descriptor of a known kind.

use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat};
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    os::fd::{AsFd, BorrowedFd},
};
use thalweg_sys::{Errno, io};

use crate::Guarantees;

/// What an end is, as far as mechanisms care.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A slice of this process's memory.
    Memory,
    /// A regular file, a memfd among them.
    File,
    /// One end of a pipe or a FIFO.
    Pipe,
    /// A connected stream socket.
    Socket,
    /// A character or block device, a terminal among them.
    Device,
    /// `/dev/null` as a sink: it takes everything and keeps nothing.
    Null,
}

impl Kind {
    /// All kinds, in the order the manual lists them.
    pub const ALL: [Self; 6] =
        [Self::Memory, Self::File, Self::Pipe, Self::Socket, Self::Device, Self::Null];

    /// The lower-case name used in profiles and on the command line.
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

/// An open file descriptor as one end of a transfer.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    /// The descriptor.
    pub fd: BorrowedFd<'a>,
    /// What it is.
    pub kind: Kind,
    /// Where the next byte is, for an end that can be addressed. The descriptor's own offset is
    /// neither used nor moved then. `None` for streams, and for files opened with `O_APPEND`.
    pub at: Option<u64>,
}

impl<'a> End<'a> {
    /// Looks at an open descriptor. A file or block device starts at the descriptor's own offset.
    pub fn of(fd: BorrowedFd<'a>) -> Result<Self, Errno> {
        let stat = fstat(fd)?;
        let (kind, addressed) = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Fifo => (Kind::Pipe, false),
            FileType::Socket => (Kind::Socket, false),
            FileType::CharacterDevice if stat.st_rdev == NULL_DEVICE => (Kind::Null, false),
            FileType::CharacterDevice => (Kind::Device, false),
            FileType::BlockDevice => (Kind::Device, true),
            FileType::Directory => return Err(Errno::ISDIR),
            _ => (Kind::File, !fcntl_getfl(fd)?.contains(OFlags::APPEND)),
        };
        // Some files of /proc and /sys refuse to seek: they are streams to us.
        let at = if addressed { rustix::fs::tell(fd).ok() } else { None };
        Ok(Self { fd, kind, at })
    }

    /// The same from its first byte, if it can be addressed.
    pub fn from_start(fd: BorrowedFd<'a>) -> Result<Self, Errno> {
        let end = Self::of(fd)?;
        Ok(Self { at: end.at.and(Some(0)), ..end })
    }

    /// The same end, at offset `at`.
    #[must_use]
    pub fn at(mut self, at: u64) -> Self {
        self.at = Some(at);
        self
    }

    /// One `pread` or `read`; moves `at` by what came.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Errno> {
        let got = match self.at {
            Some(at) => io::pread(self.fd, buffer, at)?,
            None => io::read(self.fd, buffer)?,
        };
        self.forward(got as u64);
        Ok(got)
    }

    /// One `pwrite` or `write`; moves `at` by what went.
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        let put = match self.at {
            Some(at) => io::pwrite(self.fd, bytes, at)?,
            None => io::write(self.fd, bytes)?,
        };
        self.forward(put as u64);
        Ok(put)
    }

    /// The call that [`read`](Self::read) makes.
    pub fn read_call(&self) -> &'static str {
        if self.at.is_some() { "pread" } else { "read" }
    }

    /// The call that [`write`](Self::write) makes.
    pub fn write_call(&self) -> &'static str {
        if self.at.is_some() { "pwrite" } else { "write" }
    }

    /// Moves the offset past `count` bytes that some other call moved.
    pub fn forward(&mut self, count: u64) {
        if let Some(at) = &mut self.at {
            *at += count;
        }
    }
}

// Major 1, minor 3 (Documentation/admin-guide/devices.txt), as the kernel packs them.
const NULL_DEVICE: u64 = (1 << 8) | 3;

/// Where bytes come from.
#[derive(Debug)]
pub enum Source<'a> {
    /// These bytes.
    Memory(&'a [u8]),
    /// An open descriptor.
    Fd(End<'a>),
}

/// Where bytes go.
#[derive(Debug)]
pub enum Sink<'a> {
    /// This memory; it is full after as many bytes as it is long.
    Memory(&'a mut [u8]),
    /// An open descriptor.
    Fd(End<'a>),
}

impl Source<'_> {
    /// What kind of end it is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Memory(_) => Kind::Memory,
            Self::Fd(end) => end.kind,
        }
    }
}

impl Sink<'_> {
    /// What kind of end it is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Memory(_) => Kind::Memory,
            Self::Fd(end) => end.kind,
        }
    }
}

/// A job: these bytes, there, with these promises.
#[derive(Debug)]
pub struct Transfer<'a> {
    /// Where the bytes come from.
    pub source: Source<'a>,
    /// Where they go.
    pub sink: Sink<'a>,
    /// How many to move; `None` = until the source ends.
    pub len: Option<u64>,
    /// What must hold afterwards.
    pub needs: Guarantees,
}

impl<'a> Transfer<'a> {
    /// Everything from one descriptor to another, stable.
    pub fn between(source: &'a impl AsFd, sink: &'a impl AsFd) -> Result<Self, Errno> {
        let source = Source::Fd(End::of(source.as_fd())?);
        let sink = Sink::Fd(End::of(sink.as_fd())?);
        Ok(Self { source, sink, len: None, needs: Guarantees::default() })
    }

    /// The same job, for as long as this one is borrowed.
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

    /// The part of the job that is left after `done` bytes, for a mechanism to open. Memory to be
    /// filled is given away by it: what comes after the first mechanism finds none.
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

    /// The most this job can move: the asked length, or what the memory ends hold.
    pub fn limit(&self) -> Option<u64> {
        let memory = [
            if let Source::Memory(bytes) = &self.source { Some(bytes.len() as u64) } else { None },
            if let Sink::Memory(bytes) = &self.sink { Some(bytes.len() as u64) } else { None },
        ];
        memory.into_iter().flatten().chain(self.len).min()
    }
}

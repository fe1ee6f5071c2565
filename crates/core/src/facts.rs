//! What can be known about a job without moving a byte.

use rustix::{
    fs::{OFlags, SealFlags, fcntl_get_seals, fcntl_getfl, fstat},
    net::sockopt::socket_domain,
};
use thalweg_sys::host::{FileSystem, filesystem};

use crate::{End, Guarantees, Kind, Sink, Source, Transfer};

/// The facts of both ends and of the job.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The source.
    pub source: EndFacts,
    /// The sink.
    pub sink: EndFacts,
    /// How many bytes, as far as known beforehand. A file's size is a hint, not a promise.
    pub len: Option<u64>,
    /// What the caller will not give up.
    pub needs: Guarantees,
}

/// The facts of one end.
#[derive(Clone, Debug)]
pub struct EndFacts {
    /// What it is.
    pub kind: Kind,
    /// The file system it lies on, for files.
    pub fs: Option<FileSystem>,
    /// Whether it can be addressed by offset.
    pub addressed: bool,
    /// Opened with `O_APPEND`.
    pub append: bool,
    /// Nobody can change its bytes any more: a memfd sealed against writing and shrinking.
    pub sealed: bool,
    /// An internet socket, not a unix one.
    pub internet: bool,
}

impl EndFacts {
    /// Memory of this process.
    pub const MEMORY: Self = Self {
        kind: Kind::Memory,
        fs: None,
        addressed: true,
        append: false,
        sealed: false,
        internet: false,
    };

    /// Asks the kernel about an open end.
    pub fn of(end: &End<'_>) -> Self {
        let file = end.kind == Kind::File;
        let flags = fcntl_getfl(end.fd).unwrap_or(OFlags::empty());
        let seals = if file { fcntl_get_seals(end.fd).ok() } else { None };
        let immutable = SealFlags::WRITE | SealFlags::SHRINK;
        Self {
            kind: end.kind,
            fs: if file { filesystem(end.fd).ok() } else { None },
            addressed: end.at.is_some(),
            append: flags.contains(OFlags::APPEND),
            sealed: seals.is_some_and(|s| s.contains(immutable)),
            internet: end.kind == Kind::Socket
                && socket_domain(end.fd).is_ok_and(|d| d != rustix::net::AddressFamily::UNIX),
        }
    }

    /// The key under which a profile keeps this kind of end: `file:ext4`, `pipe`.
    pub fn key(&self) -> String {
        match &self.fs {
            Some(fs) => format!("{}:{}", self.kind, fs.name),
            None => self.kind.to_string(),
        }
    }
}

impl Facts {
    /// Asks the kernel about both ends of a job.
    pub fn of(transfer: &Transfer<'_>) -> Self {
        let (source, size) = match &transfer.source {
            Source::Memory(bytes) => (EndFacts::MEMORY, Some(bytes.len() as u64)),
            Source::Fd(end) => (EndFacts::of(end), left_in(end)),
        };
        let sink = match &transfer.sink {
            Sink::Memory(_) => EndFacts::MEMORY,
            Sink::Fd(end) => EndFacts::of(end),
        };
        let len = [transfer.limit(), size].into_iter().flatten().min();
        Self { source, sink, len, needs: transfer.needs }
    }

    /// Whether both ends are files of one file system.
    pub fn one_file_system(&self) -> bool {
        match (&self.source.fs, &self.sink.fs) {
            (Some(a), Some(b)) => a.dev == b.dev,
            _ => false,
        }
    }

    /// Whether either end lies on a file system served from elsewhere.
    pub fn remote(&self) -> bool {
        [&self.source.fs, &self.sink.fs].into_iter().flatten().any(|fs| fs.remote)
    }

    /// What a mechanism has to give: what was asked for, less what the source guarantees anyway.
    pub fn needs(&self) -> Guarantees {
        Guarantees { stable: self.needs.stable && !self.source.sealed, ..self.needs }
    }
}

/// Bytes between an end's offset and the end of its file; `None` where the size says nothing
/// (streams, and the files of /proc and /sys, whose size is 0 or a page).
fn left_in(end: &End<'_>) -> Option<u64> {
    let stat = fstat(end.fd).ok()?;
    let size = u64::try_from(stat.st_size).ok().filter(|size| *size > 0)?;
    if end.kind == Kind::File { Some(size.saturating_sub(end.at?)) } else { None }
}

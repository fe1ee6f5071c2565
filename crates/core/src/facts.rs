//! What can be known about a job without moving a byte.

use rustix::{
    fd::BorrowedFd,
    fs::{
        AtFlags, OFlags, SealFlags, StatxAttributes, StatxFlags, fcntl_get_seals, fcntl_getfl,
        fstat, statx,
    },
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
    /// No byte of it can ever change: a memfd sealed against writing, shrinking and growing, a file
    /// with fs-verity, or one on a file system that can only be read.
    pub unchanging: bool,
    /// An internet socket, not a unix one.
    pub internet: bool,
    /// A file that holds bytes from its offset on: a sink whose pages may be there already.
    pub filled: bool,
}

impl EndFacts {
    /// Memory of this process.
    pub const MEMORY: Self = Self {
        kind: Kind::Memory,
        fs: None,
        addressed: true,
        append: false,
        unchanging: false,
        internet: false,
        filled: false,
    };

    /// Asks the kernel about an open end.
    pub fn of(end: &End<'_>) -> Self {
        Self::with_size(end).0
    }

    /// The same, and how many bytes are left in it as far as it says so.
    fn with_size(end: &End<'_>) -> (Self, Option<u64>) {
        let left = left_in(end);
        let file = end.kind == Kind::File;
        let flags = fcntl_getfl(end.fd).unwrap_or(OFlags::empty());
        let fs = if file { filesystem(end.fd).ok() } else { None };
        let facts = Self {
            kind: end.kind,
            filled: left.is_some_and(|left| left > 0),
            unchanging: file && is_unchanging(end.fd, fs.as_ref()),
            fs,
            addressed: end.at.is_some(),
            append: flags.contains(OFlags::APPEND),
            internet: end.kind == Kind::Socket
                && socket_domain(end.fd).is_ok_and(|d| d != rustix::net::AddressFamily::UNIX),
        };
        (facts, left)
    }

    /// What holds of every file of its file system: that this one can never change says nothing of the others,
    /// unless no kernel can write there.
    #[must_use]
    pub fn of_any_file(self) -> Self {
        let unchanging = self.unchanging && self.fs.as_ref().is_some_and(is_read_only);
        Self { unchanging, ..self }
    }

    /// The key under which a profile keeps this kind of end: `file:ext4`, `pipe`, `socket:inet`.
    pub fn key(&self) -> String {
        match (&self.fs, self.kind) {
            (Some(fs), _) => format!("{}:{}", self.kind, fs.name),
            (None, Kind::Socket) if self.internet => format!("{}:inet", self.kind),
            (None, Kind::Socket) => format!("{}:unix", self.kind),
            (None, _) => self.kind.to_string(),
        }
    }

    /// The mount options of its file system, under which a profile keeps it; empty for what is no file.
    pub fn options(&self) -> String {
        self.fs.as_ref().map_or_else(String::new, |fs| fs.options().to_owned())
    }

    /// The end that a profile keeps under this key and these mount options, as far as the key
    /// tells; `None` for a key that is none.
    pub fn of_key(key: &str, options: &str) -> Option<Self> {
        let (kind, more) = key.split_once(':').unwrap_or((key, ""));
        let kind = Kind::ALL.into_iter().find(|known| known.name() == kind)?;
        let end = Self {
            kind,
            fs: (kind == Kind::File).then(|| FileSystem::named(more, options)),
            addressed: matches!(kind, Kind::File | Kind::Memory),
            internet: kind == Kind::Socket && more == "inet",
            ..Self::MEMORY
        };
        (end.key() == key).then_some(end)
    }
}

impl Facts {
    /// Asks the kernel about both ends of a job.
    pub fn of(transfer: &Transfer<'_>) -> Self {
        let (source, size) = match &transfer.source {
            Source::Memory(bytes) => (EndFacts::MEMORY, Some(bytes.len() as u64)),
            Source::Fd(end) => EndFacts::with_size(end),
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

    /// Whether both ends are files whose bytes this kernel keeps by itself: no server and no program
    /// answers for them.
    pub fn kept_here(&self) -> bool {
        let is_here = |end: &EndFacts| {
            let fs = end.fs.as_ref();
            fs.is_some_and(|fs| !fs.remote && !fs.name.starts_with("fuse") && fs.name != "virtiofs")
        };
        is_here(&self.source) && is_here(&self.sink)
    }

    /// Whether either end lies on a file system served from elsewhere.
    pub fn remote(&self) -> bool {
        [&self.source.fs, &self.sink.fs].into_iter().flatten().any(|fs| fs.remote)
    }

    /// What a mechanism has to give: what was asked for, less what the source guarantees anyway. Pages
    /// shared with a source that can never change are as good as a copy of them.
    pub fn needs(&self) -> Guarantees {
        let may_change = !self.source.unchanging;
        Guarantees {
            stable: self.needs.stable && may_change,
            private: self.needs.private && may_change,
            ..self.needs
        }
    }
}

/// File systems that no kernel can write.
const READ_ONLY: [&str; 3] = ["squashfs", "erofs", "iso9660"];

fn is_read_only(fs: &FileSystem) -> bool {
    READ_ONLY.contains(&&*fs.name)
}

/// Whether no byte of a file can ever change. Being mounted or opened read-only is not enough: the file
/// may be written by another way, and F_SEAL_FUTURE_WRITE leaves the maps that are there.
fn is_unchanging(fd: BorrowedFd<'_>, fs: Option<&FileSystem>) -> bool {
    fs.is_some_and(is_read_only) || is_sealed(fd)
}

/// Whether this file can never change although its file system can: a memfd with all three seals, or one with fs-verity.
pub fn is_sealed(fd: BorrowedFd<'_>) -> bool {
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW;
    let has_verity = || {
        let told = statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::empty());
        told.is_ok_and(|told| told.stx_attributes.contains(StatxAttributes::VERITY))
    };
    fcntl_get_seals(fd).is_ok_and(|found| found.contains(seals)) || has_verity()
}

/// Bytes between an end's offset and the end of its file; `None` where the size says nothing
/// (streams, and the files of /proc and /sys, whose size is 0 or a page).
fn left_in(end: &End<'_>) -> Option<u64> {
    let stat = fstat(end.fd).ok()?;
    let size = u64::try_from(stat.st_size).ok().filter(|size| *size > 0)?;
    if end.kind == Kind::File { Some(size.saturating_sub(end.at?)) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, fcntl_add_seals, memfd_create};
    use std::os::fd::AsFd;

    #[test]
    fn an_end_is_found_again_from_its_key() {
        for key in ["file:ext4", "memory", "pipe", "socket:inet", "socket:unix", "null", "device"] {
            let end = EndFacts::of_key(key, "rw").unwrap();
            assert_eq!(end.key(), key);
            assert_eq!(end.fs.is_some(), end.kind == Kind::File);
        }
        for key in ["", "socket", "pipe:ext4", "teleport"] {
            assert!(EndFacts::of_key(key, "").is_none(), "{key}");
        }
    }

    #[test]
    fn a_memfd_can_never_change_once_it_is_sealed_against_every_change() {
        let every = [SealFlags::WRITE, SealFlags::SHRINK, SealFlags::GROW];
        let without = |missing: Option<SealFlags>| {
            let fd = memfd_create("facts", MemfdFlags::ALLOW_SEALING).unwrap();
            let seals = every.into_iter().filter(|seal| Some(*seal) != missing);
            fcntl_add_seals(&fd, seals.collect()).unwrap();
            let source = EndFacts::of(&End::of(fd.as_fd()).unwrap());
            let needs = Guarantees { durable: true, ..Guarantees::COPIED };
            Facts { source, sink: EndFacts::MEMORY, len: None, needs }
        };
        let whole = without(None);
        assert!(whole.source.unchanging && whole.needs().durable);
        assert!(!whole.needs().stable && !whole.needs().private);
        for missing in every {
            let facts = without(Some(missing));
            assert!(!facts.source.unchanging && facts.needs() == facts.needs, "{missing:?}");
        }
    }

    #[test]
    fn a_file_with_bytes_in_it_is_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "bytes").unwrap();
        let file = std::fs::File::open(&path).unwrap();
        let end = End::of(file.as_fd()).unwrap();
        assert!(EndFacts::of(&end).filled);
        assert!(!EndFacts::of(&end.at(5)).filled);
    }
}

//! Facts about a transfer that can be found without moving a byte.

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

/// The facts of both endpoints and of the transfer.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The source.
    pub source: EndFacts,
    /// The sink.
    pub sink: EndFacts,
    /// The number of bytes to move; `None` if unknown. If it comes from the size of a file, it is only a hint.
    pub len: Option<u64>,
    /// The guarantees that the caller requires.
    pub needs: Guarantees,
}

/// The facts of one endpoint.
#[derive(Clone, Debug)]
pub struct EndFacts {
    /// The kind of endpoint.
    pub kind: Kind,
    /// The file system of a file.
    pub fs: Option<FileSystem>,
    /// `true` if the endpoint can be addressed by offset.
    pub addressed: bool,
    /// `true` if the endpoint was opened with `O_APPEND`.
    pub append: bool,
    /// `true` if no byte of the endpoint can ever change. This holds for a memfd sealed against writing, shrinking and
    /// growing, a file with fs-verity, and a file on a read-only file system format.
    pub unchanging: bool,
    /// `true` for an internet socket, `false` for a unix socket.
    pub internet: bool,
    /// `true` if the file has bytes after the endpoint's offset. A sink's pages may then already be in memory.
    pub filled: bool,
}

impl EndFacts {
    /// The facts of memory of this process.
    pub const MEMORY: Self = Self {
        kind: Kind::Memory,
        fs: None,
        addressed: true,
        append: false,
        unchanging: false,
        internet: false,
        filled: false,
    };

    /// Queries the kernel about an open endpoint.
    pub fn of(end: &End<'_>) -> Self {
        Self::with_size(end).0
    }

    /// Returns the facts, and the number of bytes left in the endpoint if it reports a size.
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

    /// Returns the facts that hold for every file of the file system. `unchanging` stays `true` only if the kernel
    /// cannot write to the file system at all.
    #[must_use]
    pub fn of_any_file(self) -> Self {
        let unchanging = self.unchanging && self.fs.as_ref().is_some_and(is_read_only);
        Self { unchanging, ..self }
    }

    /// Returns the key of this kind of endpoint in a profile: `file:ext4`, `pipe`, `socket:inet`.
    pub fn key(&self) -> String {
        match (&self.fs, self.kind) {
            (Some(fs), _) => format!("{}:{}", self.kind, fs.name),
            (None, Kind::Socket) if self.internet => format!("{}:inet", self.kind),
            (None, Kind::Socket) => format!("{}:unix", self.kind),
            (None, _) => self.kind.to_string(),
        }
    }

    /// Returns the mount options of the endpoint's file system, which are part of the key in a profile. Empty if the
    /// endpoint is not a file.
    pub fn options(&self) -> String {
        self.fs.as_ref().map_or_else(String::new, |fs| fs.options().to_owned())
    }

    /// Returns the facts of an endpoint that has this key and these mount options in a profile, as far as they
    /// determine the facts. `None` if the key is invalid.
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
    /// Queries the kernel about both endpoints of a transfer.
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

    /// Returns `true` if both endpoints are files of one file system.
    pub fn one_file_system(&self) -> bool {
        match (&self.source.fs, &self.sink.fs) {
            (Some(a), Some(b)) => a.dev == b.dev,
            _ => false,
        }
    }

    /// Returns `true` if both endpoints are files that this kernel stores without a server or a user-space program.
    pub fn kept_here(&self) -> bool {
        let is_here = |end: &EndFacts| {
            let fs = end.fs.as_ref();
            fs.is_some_and(|fs| !fs.remote && !fs.name.starts_with("fuse") && fs.name != "virtiofs")
        };
        is_here(&self.source) && is_here(&self.sink)
    }

    /// Returns `true` if either endpoint is on a network file system.
    pub fn remote(&self) -> bool {
        [&self.source.fs, &self.sink.fs].into_iter().flatten().any(|fs| fs.remote)
    }

    /// Returns the guarantees that a mechanism must give: the required ones, except those that every transfer from this
    /// source has. Pages shared with a source that can never change are as good as a copy.
    pub fn needs(&self) -> Guarantees {
        let may_change = !self.source.unchanging;
        Guarantees {
            stable: self.needs.stable && may_change,
            private: self.needs.private && may_change,
            ..self.needs
        }
    }
}

/// File systems that no kernel can write to.
const READ_ONLY: [&str; 3] = ["squashfs", "erofs", "iso9660"];

fn is_read_only(fs: &FileSystem) -> bool {
    READ_ONLY.contains(&&*fs.name)
}

/// Returns `true` if no byte of a file can ever change. A read-only mount or descriptor is not enough, because the file
/// may be written through another one. `F_SEAL_FUTURE_WRITE` is not enough either, because existing writable maps
/// remain.
fn is_unchanging(fd: BorrowedFd<'_>, fs: Option<&FileSystem>) -> bool {
    fs.is_some_and(is_read_only) || is_sealed(fd)
}

/// Returns `true` if this file can never change although its file system is writable: a memfd with all three seals, or
/// a file with fs-verity.
pub fn is_sealed(fd: BorrowedFd<'_>) -> bool {
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW;
    let has_verity = || {
        let told = statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::empty());
        told.is_ok_and(|told| told.stx_attributes.contains(StatxAttributes::VERITY))
    };
    fcntl_get_seals(fd).is_ok_and(|found| found.contains(seals)) || has_verity()
}

/// Returns the number of bytes between an endpoint's offset and the end of its file. `None` for streams, and for files
/// of /proc and /sys that report a size of 0.
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

//! The memory file of one side. Its owner creates it, seals it and maps it for writing. The peer checks it and maps it
//! read-only.

use crate::error::{Error, Result};
use crate::layout::{Geometry, Role, SideWords};
use rustix::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Weak;
use thalweg_sys::mirror::{Access, Mirror};
use thalweg_sys::robust::{self, Enlisted};
use thalweg_sys::watch::{WatchedWord, watch};
use thalweg_sys::{Errno, io, memfd};

/// A mapped memory file. `geometry` is a private copy that was checked before the mapping.
#[derive(Debug)]
pub(crate) struct SideMemory {
    /// Registration of the liveness word on the kernel's robust list. The field is never read. It is declared before
    /// `mirror`, and so dropped first, because the word must be off the list before it is unmapped.
    #[allow(dead_code, reason = "its drop is its use")]
    enlisted: Option<Enlisted>,
    /// Registration of a watch on the peer's liveness word. It must also be dropped before `mirror`.
    #[allow(dead_code, reason = "its drop is its use")]
    watched: Option<WatchedWord>,
    pub(crate) mirror: Mirror,
    pub(crate) geometry: Geometry,
}

/// The memory of both sides.
#[derive(Debug)]
pub(crate) struct Sides {
    pub own: SideMemory,
    pub peer: SideMemory,
}

impl SideMemory {
    /// Creates the memory file of this side. Also returns the descriptor for the peer.
    pub(crate) fn make(role: Role, geometry: Geometry) -> Result<(Self, OwnedFd)> {
        let (header, data) = (geometry.header as usize, geometry.data_len(role));
        let fd = memfd::create(role.name(), (header + data) as u64);
        let fd = fd.map_err(|failed| Error::system(failed.call)(failed.errno))?;
        let fixed = geometry.to_bytes(role);
        match io::pwrite(&fd, &fixed, 0) {
            Ok(len) if len == fixed.len() => {}
            answer => {
                let errno = answer.err().unwrap_or(Errno::NOSPC);
                return Err(Error::System { call: "pwrite to a memfd", errno });
            }
        }
        let mirror = Mirror::map(&fd, header, data, Access::Write);
        let mirror = mirror.map_err(Error::system("mmap of a memfd"))?;
        // Errors are ignored: the call only avoids page faults when each page is first used, and kernels before 5.14 do
        // not support it.
        let _ = mirror.populate(Access::Write);
        memfd::seal_for_one_writer(&fd).map_err(Error::system("fcntl(F_ADD_SEALS)"))?;
        let mut memory = Self { enlisted: None, watched: None, mirror, geometry };
        let node = NonNull::from(&memory.words().alive.0.node);
        // If `enlist` cannot start its thread, the liveness word stays 0. The peer then notices our death by the link.
        // SAFETY: The node is new, sealed against other writers, and stays mapped until `enlisted` is dropped.
        memory.enlisted = unsafe { robust::enlist(node) }.ok();
        Ok((memory, fd))
    }

    /// Checks and maps the peer's memory file. Every checked value comes from the kernel or is a private copy, so no
    /// decision depends on bytes that the peer can still change.
    pub(crate) fn of_peer(fd: impl AsFd, role: Role) -> Result<Self> {
        let facts = memfd::facts(&fd).map_err(|errno| {
            Error::not_permitted(format!("cannot read the seals of the peer's memory: {errno}"))
        })?;
        // Reject holes, because `populate` would allocate all their pages at once, charged to this process. The seals
        // prevent later holes.
        let is_whole = memfd::is_whole(&fd);
        if !(facts.fixed_size && facts.one_writer && facts.ordinary && is_whole) {
            let why = format!(
                "the peer's memory is refused (fixed size: {}, only the peer can write: {}, \
                 ordinary pages: {}, all pages allocated: {is_whole})",
                facts.fixed_size, facts.one_writer, facts.ordinary
            );
            return Err(Error::NotPermitted { why });
        }
        let mut fixed = [0; Geometry::LEN];
        match io::pread(&fd, &mut fixed, 0) {
            Ok(Geometry::LEN) => {}
            Ok(len) => {
                return Err(Error::corrupt(format!("the peer's memory has only {len} bytes")));
            }
            Err(errno) => return Err(unusable("pread of the peer's memory", errno)),
        }
        let geometry = Geometry::parse(&fixed, role).map_err(Error::corrupt)?;
        let (header, data) = (geometry.header as usize, geometry.data_len(role));
        if facts.len != (header + data) as u64 {
            let what = format!(
                "the peer's memory has {} bytes, but {header} + {data} were announced",
                facts.len
            );
            return Err(Error::Corrupt { what });
        }
        let mirror = Mirror::map(&fd, header, data, Access::Read);
        let mirror = mirror.map_err(|errno| unusable("mmap of the peer's memory", errno))?;
        let _ = mirror.populate(Access::Read);
        Ok(Self { enlisted: None, watched: None, mirror, geometry })
    }

    /// Arranges, if possible, that these sockets are shut down when the kernel marks the owner's death. Replaces the
    /// sockets of an earlier call.
    pub(crate) fn watch(&mut self, sockets: Vec<Weak<OwnedFd>>) {
        self.watched = None;
        let word = NonNull::from(&self.words().alive.0.node.word);
        // SAFETY: The word stays mapped until `watched` is dropped.
        self.watched = unsafe { watch(word, sockets) }.ok();
    }

    /// Returns a second handle to the mapping, which exists until both handles are dropped. The registrations stay with
    /// `self`.
    pub(crate) fn share(&self) -> Self {
        let (mirror, geometry) = (self.mirror.share(), self.geometry);
        Self { enlisted: None, watched: None, mirror, geometry }
    }

    #[inline]
    pub(crate) fn words(&self) -> &SideWords {
        // SAFETY: The header is at least as long as `SideWords` (`Geometry::check`), page-aligned, and mapped while
        // `self` lives. `SideWords` consists of atomics and cells, so other processes may write to it.
        unsafe { self.mirror.header().cast().as_ref() }
    }
}

/// Converts a failed call on a descriptor of the peer. EBADF and EACCES mean that the peer did not open it for reading.
fn unusable(call: &'static str, errno: Errno) -> Error {
    match errno {
        // EPERM is not among these errors, because it comes from a seccomp filter of this process.
        Errno::BADF | Errno::ACCESS => {
            Error::not_permitted(format!("{call}: {}", thalweg_core::error::errno_name(errno)))
        }
        errno => Error::System { call, errno },
    }
}

//! One side's memory file: made, sealed and mapped for writing by its owner, checked and mapped for
//! reading by the other.

use crate::error::{Error, Result};
use crate::layout::{Geometry, Role, Words};
use rustix::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Weak;
use thalweg_sys::map::Access;
use thalweg_sys::mirror::Mirror;
use thalweg_sys::robust::{self, Enlisted};
use thalweg_sys::watch::{Watched, watch};
use thalweg_sys::{Errno, io, memfd};

/// A mapped side. Its sizes are a private copy, checked before it was mapped.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Only to be dropped, and before the mapping: the word must be off the kernel's list by then.
    #[allow(dead_code, reason = "its drop is its use")]
    enlisted: Option<Enlisted>,
    /// The same, of a peer's word that is slept on.
    #[allow(dead_code, reason = "its drop is its use")]
    watched: Option<Watched>,
    pub(crate) mirror: Mirror,
    pub(crate) geometry: Geometry,
}

/// The memory of both sides.
#[derive(Debug)]
pub(crate) struct Sides {
    pub own: Memory,
    pub peer: Memory,
}

impl Memory {
    /// Makes our side. The descriptor is for the peer.
    pub(crate) fn make(role: Role, geometry: Geometry) -> Result<(Self, OwnedFd)> {
        let (header, data) = (geometry.header as usize, geometry.data_len(role));
        let fd = memfd::create(role.name(), (header + data) as u64);
        let fd = fd.map_err(|failed| Error::system(failed.call)(failed.errno))?;
        let fixed = geometry.to_bytes(role);
        match io::pwrite(&fd, &fixed, 0) {
            Ok(len) if len == fixed.len() => {}
            answer => {
                let errno = answer.err().unwrap_or(Errno::NOSPC);
                return Err(Error::System { call: "pwrite to a memory file", errno });
            }
        }
        let mirror = Mirror::map(&fd, header, data, Access::Write);
        let mirror = mirror.map_err(Error::system("mmap of a memory file"))?;
        // Only spares the first round its page faults: older kernels cannot.
        let _ = mirror.populate(Access::Write);
        memfd::seal_for_one_writer(&fd).map_err(Error::system("fcntl(F_ADD_SEALS)"))?;
        let mut memory = Self { enlisted: None, watched: None, mirror, geometry };
        let node = NonNull::from(&memory.words().alive.0.node);
        // SAFETY: mapped until after enlisted is dropped, new, and sealed against other writers.
        // Without a thread to be had the word stays 0, and the peer watches the link instead.
        memory.enlisted = unsafe { robust::enlist(node) }.ok();
        Ok((memory, fd))
    }

    /// Checks and maps the peer's side. Everything is asked of the kernel or copied before it is
    /// judged: nothing that the peer could still change decides.
    pub(crate) fn of_peer(fd: impl AsFd, role: Role) -> Result<Self> {
        let facts = memfd::facts(&fd).map_err(|errno| {
            Error::not_permitted(format!("the peer's memory cannot be sealed: {errno}"))
        })?;
        if !(facts.fixed_size && facts.one_writer && facts.ordinary) {
            let why = format!(
                "the peer's memory must be of fixed size ({}), written by the peer alone ({}) and \
                 of ordinary pages ({})",
                facts.fixed_size, facts.one_writer, facts.ordinary
            );
            return Err(Error::NotPermitted { why });
        }
        let mut fixed = [0; Geometry::LEN];
        match io::pread(&fd, &mut fixed, 0) {
            Ok(Geometry::LEN) => {}
            Ok(len) => return Err(Error::corrupt(format!("memory of {len} bytes"))),
            Err(errno) => return Err(unusable("pread of the peer's memory", errno)),
        }
        let geometry = Geometry::parse(&fixed, role).map_err(Error::corrupt)?;
        let (header, data) = (geometry.header as usize, geometry.data_len(role));
        if facts.len != (header + data) as u64 {
            let what = format!("memory of {} bytes, told as {header} + {data}", facts.len);
            return Err(Error::Corrupt { what });
        }
        let mirror = Mirror::map(&fd, header, data, Access::Read);
        let mirror = mirror.map_err(|errno| unusable("mmap of the peer's memory", errno))?;
        let _ = mirror.populate(Access::Read);
        Ok(Self { enlisted: None, watched: None, mirror, geometry })
    }

    /// Has these sockets hung up when the kernel marks the owner's death, if that can be had, in place of
    /// those given before.
    pub(crate) fn watch(&mut self, sockets: Vec<Weak<OwnedFd>>) {
        self.watched = None;
        let word = NonNull::from(&self.words().alive.0.node.word);
        // SAFETY: mapped until after watched is dropped.
        self.watched = unsafe { watch(word, sockets) }.ok();
    }

    /// The same memory at the same addresses, which stays mapped until both are gone. Whose end the
    /// other side sees there, and whose is watched, is `self`'s.
    pub(crate) fn share(&self) -> Self {
        let (mirror, geometry) = (self.mirror.share(), self.geometry);
        Self { enlisted: None, watched: None, mirror, geometry }
    }

    #[inline]
    pub(crate) fn words(&self) -> &Words {
        // SAFETY: the header is at least as long as Words (`Geometry::check`), aligned to a page, and
        // mapped as long as self. Words is atomics and cells: others may write it.
        unsafe { self.mirror.header().cast().as_ref() }
    }
}

/// A call failed on what the peer handed over. It is the peer's failure if the descriptor was not opened for reading.
fn unusable(call: &'static str, errno: Errno) -> Error {
    match errno {
        // Not EPERM, which is a filter's answer (seccomp).
        Errno::BADF | Errno::ACCESS => {
            Error::not_permitted(format!("{call}: {}", thalweg_core::error::errno_name(errno)))
        }
        errno => Error::System { call, errno },
    }
}

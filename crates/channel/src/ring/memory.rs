//! One side's memory: made, sealed and mapped for writing by its owner, checked and mapped for
//! reading by the other.

use crate::error::{Error, Result};
use crate::layout::{FRAME_HEADER, Geometry, Page, Role};
use rustix::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use thalweg_sys::map::Access;
use thalweg_sys::mirror::Mirror;
use thalweg_sys::robust::{self, Enlisted};
use thalweg_sys::{Errno, io, memfd};

/// A mapped side. Its sizes are a private copy, checked before it was mapped.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Only to be dropped, and before the mapping: the word must be off the kernel's list by then.
    #[allow(dead_code, reason = "its drop is its use")]
    enlisted: Option<Enlisted>,
    mirror: Mirror,
    pub(crate) geometry: Geometry,
}

/// Bytes of data: the consumer has none.
fn data_len(geometry: &Geometry, role: Role) -> usize {
    match role {
        Role::Producer => geometry.capacity as usize,
        Role::Consumer => 0,
    }
}

impl Memory {
    /// Makes our side. The descriptor is for the peer.
    pub(crate) fn make(role: Role, geometry: Geometry) -> Result<(Self, OwnedFd)> {
        let (header, data) = (geometry.header as usize, data_len(&geometry, role));
        let fd = memfd::create("thalweg-ring", (header + data) as u64);
        let fd = fd.map_err(Error::system("memfd_create"))?;
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
        let mut memory = Self { enlisted: None, mirror, geometry };
        let node = NonNull::from(&memory.page().alive.0.node);
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
            Err(errno) => return Err(Error::System { call: "pread of the peer's memory", errno }),
        }
        let geometry = Geometry::parse(&fixed, role).map_err(Error::corrupt)?;
        let (header, data) = (geometry.header as usize, data_len(&geometry, role));
        if facts.len != (header + data) as u64 {
            let what = format!("memory of {} bytes, told as {header} + {data}", facts.len);
            return Err(Error::Corrupt { what });
        }
        let mirror = Mirror::map(&fd, header, data, Access::Read);
        let mirror = mirror.map_err(Error::system("mmap of the peer's memory"))?;
        let _ = mirror.populate(Access::Read);
        Ok(Self { enlisted: None, mirror, geometry })
    }

    /// The same memory at the same addresses, for tests under ThreadSanitizer: whose end the other
    /// side sees there is `self`'s.
    ///
    /// # Safety
    ///
    /// `self` must outlive it.
    #[cfg(test)]
    pub(super) unsafe fn same(&self) -> Self {
        // SAFETY: the caller's promise.
        let mirror = unsafe { self.mirror.same() };
        Self { enlisted: None, mirror, geometry: self.geometry }
    }

    /// The shared words.
    #[inline]
    pub(crate) fn page(&self) -> &Page {
        // SAFETY: the header is at least a Page long (`Geometry::check`), aligned to a page, and
        // mapped as long as self. A Page is atomics and cells: others may write it.
        unsafe { self.mirror.header().cast().as_ref() }
    }

    /// Where a position lies. The next `capacity` bytes from there are mapped.
    #[inline]
    pub(crate) fn at(&self, position: u64) -> NonNull<u8> {
        let offset = (position & (self.geometry.capacity - 1)) as usize;
        debug_assert!(offset < self.mirror.data_len().max(1));
        // SAFETY: offset < capacity, and the data area is mapped twice.
        unsafe { self.mirror.data().add(offset) }
    }

    /// A frame's header, copied out in four loads that the compiler may not repeat.
    #[inline]
    pub(crate) fn frame_header(&self, position: u64) -> [u8; FRAME_HEADER] {
        let mut bytes = [0; FRAME_HEADER];
        let from = self.at(position).cast::<u64>();
        for (at, word) in bytes.chunks_exact_mut(8).enumerate() {
            // SAFETY: 32 bytes from a position are mapped, and `at` < 4.
            let from = unsafe { from.add(at) };
            // SAFETY: aligned, for positions are multiples of 64; any bytes are a u64.
            let value = unsafe { from.read_volatile() };
            word.copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    /// The payload of a frame, where it lies.
    ///
    /// # Safety
    ///
    /// `len` plus the header must be at most the capacity, and nobody may write these bytes while
    /// the slice lives.
    #[inline]
    pub(crate) unsafe fn payload(&self, position: u64, len: usize) -> &[u8] {
        // SAFETY: the caller's promise; see `at`.
        let first = unsafe { self.at(position).add(FRAME_HEADER) };
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), len) }
    }

    /// Copies a payload that its owner may be changing. `len` plus the header must be at most the
    /// capacity.
    pub(crate) fn copy_payload(&self, position: u64, into: &mut [u8]) {
        assert!(into.len() + FRAME_HEADER <= self.geometry.capacity as usize);
        // SAFETY: asserted above; see `at`.
        let first = unsafe { self.at(position).add(FRAME_HEADER) };
        // SAFETY: mapped for that length; `into` is private memory.
        unsafe { std::ptr::copy_nonoverlapping(first.as_ptr(), into.as_mut_ptr(), into.len()) };
        // The copy must be made: what is judged afterwards may not be read from the source again.
        std::hint::black_box(into.as_mut_ptr());
    }

    /// Writes to our own memory, behind the head, where no consumer looks.
    pub(crate) fn write_header(&mut self, position: u64, header: &[u8; FRAME_HEADER]) {
        let to = self.at(position).as_ptr();
        // SAFETY: 32 bytes from a position are mapped for writing; &mut self.
        unsafe { std::ptr::copy_nonoverlapping(header.as_ptr(), to, FRAME_HEADER) };
    }

    /// The payload of a frame in our own memory, to be written.
    ///
    /// # Safety
    ///
    /// `len` plus the header must be at most the capacity, the memory our own, and the bytes not
    /// committed.
    #[inline]
    pub(crate) unsafe fn payload_mut(&mut self, position: u64, len: usize) -> &mut [u8] {
        // SAFETY: the caller's promise; see `at`.
        let first = unsafe { self.at(position).add(FRAME_HEADER) };
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(first.as_ptr(), len) }
    }
}

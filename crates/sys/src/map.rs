//! Memory mappings that stay safe if other processes write to the mapped file or truncate it.
//!
//! No Rust reference into a file mapping is ever created. System calls or a guarded copy loop copy the bytes. If a page
//! no longer exists, system calls return EFAULT, where a load would raise SIGBUS.

use crate::Errno;
use crate::fault::{Call, counted, uncounted};
use rustix::fd::{AsFd, AsRawFd};
use rustix::mm::{Advice, MapFlags, MprotectFlags, MsyncFlags, ProtFlags};
use rustix::param::page_size;
use std::ffi::c_void;
use std::ops::Range;
use std::ptr::NonNull;

mod guard;

/// Access to a file mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading. The descriptor must be open for reading.
    Read,
    /// Reading and writing. The descriptor must be open for both. Writes go to the file.
    Write,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MapKind {
    File(Access),
    Anonymous,
}

/// A mapping that is unmapped when dropped.
#[derive(Debug)]
pub struct Map {
    base: NonNull<c_void>,
    /// Length of the mapping from `base`, in bytes.
    mapped: usize,
    /// Offset of the caller's first byte in the mapping.
    lead: usize,
    /// The caller's length: `lead + len <= mapped`.
    len: usize,
    kind: MapKind,
}

// SAFETY: a mapping belongs to the process, not to a thread; Map is its only owner.
unsafe impl Send for Map {}
// SAFETY: through &Map memory is only read; writing requires &mut Map.
unsafe impl Sync for Map {}

/// A guarded copy that stopped early. Exactly the first `copied` bytes were copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncated {
    /// Exact number of bytes copied.
    pub copied: usize,
    /// FAULT: the next byte has no page (the file shrank, its disk failed, or the sink's disk is full). INVAL: a range
    /// is outside its map, or the sink is mapped for reading only. NOSYS: there is no guarded copy for this CPU.
    pub errno: Errno,
}

impl Map {
    /// Maps `len` bytes of a file from offset `at`, shared. `at` need not be aligned. EINVAL for `len` 0. The file may
    /// be shorter than `at + len`; accesses past its last page then fault.
    pub fn of_file(fd: impl AsFd, at: u64, len: usize, access: Access) -> Result<Self, Errno> {
        let lead = (at % page_size() as u64) as usize;
        let mapped = lead.checked_add(len).ok_or(Errno::OVERFLOW)?;
        if len == 0 || isize::try_from(mapped).is_err() {
            return Err(Errno::INVAL);
        }
        let protection = match access {
            Access::Read => ProtFlags::READ,
            Access::Write => ProtFlags::READ | ProtFlags::WRITE,
        };
        let (flags, start) = (MapFlags::SHARED, at - lead as u64);
        let base = uncounted(Call::Mmap, || {
            // SAFETY: a null hint lets the kernel choose unused addresses.
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), mapped, protection, flags, fd, start) }
        })?;
        let base = NonNull::new(base).ok_or(Errno::NOMEM)?;
        Ok(Self { base, mapped, lead, len, kind: MapKind::File(access) })
    }

    /// Maps `len` bytes of zeroed private memory, page-aligned. With `huge`, a second call requests huge pages
    /// ([`Map::advise_huge`]); an error of that call is ignored.
    pub fn anonymous(len: usize, huge: bool) -> Result<Self, Errno> {
        if len == 0 || isize::try_from(len).is_err() {
            return Err(Errno::INVAL);
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE;
        // SAFETY: a null hint lets the kernel choose unused addresses.
        let base =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, protection, flags) }?;
        let base = NonNull::new(base).ok_or(Errno::NOMEM)?;
        let map = Self { base, mapped: len, lead: 0, len, kind: MapKind::Anonymous };
        if huge {
            let _ = map.advise_huge();
        }
        Ok(map)
    }

    /// Maps `len` bytes of zeroed private memory between two inaccessible pages. The bytes end exactly where the second
    /// inaccessible page begins, and they begin in the first accessible page.
    pub fn fenced(len: usize) -> Result<Self, Errno> {
        let page = page_size();
        let whole = len.checked_next_multiple_of(page).ok_or(Errno::OVERFLOW)?;
        let mapped = whole.checked_add(2 * page).ok_or(Errno::OVERFLOW)?;
        if len == 0 || isize::try_from(mapped).is_err() {
            return Err(Errno::INVAL);
        }
        let (none, flags) = (ProtFlags::empty(), MapFlags::PRIVATE);
        // SAFETY: a null hint lets the kernel choose unused addresses.
        let base =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), mapped, none, flags) }?;
        let base = NonNull::new(base).ok_or(Errno::NOMEM)?;
        let lead = page + whole - len;
        // If the next call fails, dropping `map` unmaps the memory.
        let map = Self { base, mapped, lead, len, kind: MapKind::Anonymous };
        // SAFETY: the first page is followed by `whole` bytes and another page.
        let inner = unsafe { base.as_ptr().cast::<u8>().add(page) };
        let protection = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: `inner` and `whole` are inside the new mapping, and no reference to it exists.
        unsafe { rustix::mm::mprotect(inner.cast(), whole, protection) }?;
        Ok(map)
    }

    /// Returns the pages of an anonymous map to the kernel. The bytes are then zero, and the next access to each page
    /// faults. EINVAL for a file mapping.
    pub fn forget(&mut self) -> Result<(), Errno> {
        match self.kind {
            // `&mut self` guarantees that no reference to the bytes exists while they change.
            MapKind::Anonymous => self.advise(Advice::LinuxDontNeed),
            MapKind::File(_) => Err(Errno::INVAL),
        }
    }

    /// Returns the number of bytes in the map.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Always returns `false`: an empty mapping cannot be created.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the memory of an anonymous map. `None` for a file mapping, as other processes may change its bytes.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self.kind {
            MapKind::Anonymous => {
                // SAFETY: private memory of self.len bytes, zeroed by the kernel; writing to it requires &mut self.
                Some(unsafe { std::slice::from_raw_parts(self.first(), self.len) })
            }
            MapKind::File(_) => None,
        }
    }

    /// Like [`Map::bytes`], for writing.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        match self.kind {
            MapKind::Anonymous => {
                // SAFETY: as in `bytes`, and &mut self excludes every other reference.
                Some(unsafe { std::slice::from_raw_parts_mut(self.first(), self.len) })
            }
            MapKind::File(_) => None,
        }
    }

    /// Maps every page now (MADV_POPULATE_READ or _WRITE, Linux 5.14). EINVAL on older kernels, EFAULT if the file has
    /// no page.
    pub fn populate(&mut self) -> Result<(), Errno> {
        self.advise(match self.kind {
            MapKind::File(Access::Read) => Advice::LinuxPopulateRead,
            _ => Advice::LinuxPopulateWrite,
        })
    }

    /// Asks for huge pages (MADV_HUGEPAGE). EINVAL if the kernel has none.
    pub fn advise_huge(&self) -> Result<(), Errno> {
        self.advise(Advice::LinuxHugepage)
    }

    /// Asks for ordinary pages, even if the kernel uses huge pages by default (MADV_NOHUGEPAGE). EINVAL if the kernel
    /// has no transparent huge pages.
    pub fn advise_small(&self) -> Result<(), Errno> {
        self.advise(Advice::LinuxNoHugepage)
    }

    /// Advises the kernel that the map is read once, sequentially (MADV_SEQUENTIAL).
    pub fn advise_sequential(&self) -> Result<(), Errno> {
        self.advise(Advice::Sequential)
    }

    /// `msync(2)`, MS_SYNC: brings the bytes written to the map to stable storage.
    pub fn sync(&self) -> Result<(), Errno> {
        uncounted(Call::Fsync, || {
            // SAFETY: base and mapped are from mmap; MS_SYNC changes no memory.
            unsafe { rustix::mm::msync(self.base.as_ptr(), self.mapped, MsyncFlags::SYNC) }
        })
    }

    /// `write(2)`, or `pwrite(2)` if `out_at` is given, directly from the map. EFAULT if the file no longer has the
    /// page; EINVAL for a range outside the map.
    pub fn write_to(
        &self,
        range: Range<usize>,
        out: impl AsFd,
        out_at: Option<u64>,
    ) -> Result<usize, Errno> {
        let (from, len) = self.part(&range)?;
        let out = out.as_fd().as_raw_fd();
        let Some(at) = out_at else {
            return counted(Call::Write, len, |len| {
                // SAFETY: from..from+len is mapped (see `part`); the kernel only reads it.
                count(unsafe { libc::write(out, from.cast(), len) })
            });
        };
        let at = i64::try_from(at).map_err(|_| Errno::INVAL)?;
        counted(Call::Pwrite, len, |len| {
            // SAFETY: as above.
            count(unsafe { libc::pwrite64(out, from.cast(), len, at) })
        })
    }

    fn advise(&self, advice: Advice) -> Result<(), Errno> {
        // SAFETY: base and mapped are from mmap. Only the advice in `forget` changes bytes, and `forget` has exclusive
        // access.
        unsafe { rustix::mm::madvise(self.base.as_ptr(), self.mapped, advice) }
    }

    fn first(&self) -> *mut u8 {
        // SAFETY: lead + len <= mapped, so the result lies inside the mapping.
        unsafe { self.base.as_ptr().cast::<u8>().add(self.lead) }
    }

    /// Returns the address and length of a range, if it is inside the map.
    fn part(&self, range: &Range<usize>) -> Result<(*mut u8, usize), Errno> {
        if range.start > range.end || range.end > self.len {
            return Err(Errno::INVAL);
        }
        // SAFETY: start <= len was checked above.
        let from = unsafe { self.first().add(range.start) };
        Ok((from, range.end - range.start))
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: base and mapped are from mmap; no reference outlives self.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr(), self.mapped) };
    }
}

/// Copies `range` of one map to offset `at` of another. The copy loop survives a file that shrinks during the copy; the
/// error then contains the number of bytes copied. The first use in a process installs a SIGBUS handler, which forwards
/// other faults to the previous handler. Later uses make no system call.
pub fn copy_between(
    source: &Map,
    range: Range<usize>,
    sink: &mut Map,
    at: usize,
) -> Result<usize, Truncated> {
    let stopped = |copied, errno| Truncated { copied, errno };
    let (from, len) = source.part(&range).map_err(|errno| stopped(0, errno))?;
    let end = at.checked_add(len).ok_or(stopped(0, Errno::INVAL))?;
    let (to, _) = sink.part(&(at..end)).map_err(|errno| stopped(0, errno))?;
    if sink.kind == MapKind::File(Access::Read) {
        return Err(stopped(0, Errno::INVAL));
    }
    // SAFETY: `part` checked both ranges; the sink is writable (checked above) and held by &mut,
    // and the copy survives pages that vanish.
    let copied = unsafe { guard::copy(to, from, len) }.map_err(|errno| stopped(0, errno))?;
    if copied == len { Ok(copied) } else { Err(stopped(copied, Errno::FAULT)) }
}

fn count(answer: isize) -> Result<usize, Errno> {
    usize::try_from(answer).map_err(|_| crate::io::last_errno())
}

#[cfg(test)]
mod tests;

//! Memory mappings that stay safe although others write or truncate the file below them.
//!
//! No reference is ever made into a file mapping: bytes leave and enter it by system calls, which
//! answer EFAULT where a load would raise SIGBUS, or by a guarded copy loop.

use crate::Errno;
use crate::fault::{Call, counted, uncounted};
use rustix::fd::{AsFd, AsRawFd};
use rustix::mm::{Advice, MapFlags, MprotectFlags, MsyncFlags, ProtFlags};
use rustix::param::page_size;
use std::ffi::c_void;
use std::ops::Range;
use std::ptr::NonNull;

mod guard;

/// What a file mapping is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading; the fd must be open for reading.
    Read,
    /// Reading and writing; the fd must be open for both. Writes go to the file.
    Write,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    File(Access),
    Anonymous,
}

/// A mapping, unmapped when dropped.
#[derive(Debug)]
pub struct Map {
    base: NonNull<c_void>,
    /// Length of the mapping from `base`, in bytes.
    mapped: usize,
    /// Where in it the caller's first byte lies.
    lead: usize,
    /// The caller's length: `lead + len <= mapped`.
    len: usize,
    kind: Kind,
}

// SAFETY: a mapping belongs to the process, not to a thread; Map is its only owner.
unsafe impl Send for Map {}
// SAFETY: through &Map memory is only read; writing takes &mut Map.
unsafe impl Sync for Map {}

/// A guarded copy that stopped: everything before `copied` is copied, nothing after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncated {
    /// Bytes copied, exactly.
    pub copied: usize,
    /// FAULT: the next byte has no page (the file shrank, its disk failed, or the sink's disk is
    /// full). INVAL: a range outside its map, or a sink mapped for reading. NOSYS: no guarded
    /// copy for this CPU.
    pub errno: Errno,
}

impl Map {
    /// Maps `len` bytes of a file from byte `at`, shared. `at` need not be aligned. EINVAL for
    /// `len` 0; the file may be shorter than `at + len`: then the bytes past its last page fault.
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
        Ok(Self { base, mapped, lead, len, kind: Kind::File(access) })
    }

    /// `len` bytes of zeroed private memory, aligned to a page. With `huge` the kernel is also
    /// asked for huge pages (a second call, [`Map::advise_huge`]); its refusal is no error.
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
        let map = Self { base, mapped: len, lead: 0, len, kind: Kind::Anonymous };
        if huge {
            let _ = map.advise_huge();
        }
        Ok(map)
    }

    /// `len` bytes of zeroed private memory that end where a page begins which nobody may touch, and
    /// begin behind another such page or in the page after it.
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
        // Dropped, and so unmapped, if the next call fails.
        let map = Self { base, mapped, lead, len, kind: Kind::Anonymous };
        // SAFETY: the first page is followed by `whole` bytes and another page.
        let inner = unsafe { base.as_ptr().cast::<u8>().add(page) };
        let protection = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: `inner` and `whole` lie inside the new mapping, to which there is no reference.
        unsafe { rustix::mm::mprotect(inner.cast(), whole, protection) }?;
        Ok(map)
    }

    /// Gives the pages of an anonymous map back: its bytes are zero again, and the next write to each
    /// page faults. EINVAL for a file's.
    pub fn forget(&mut self) -> Result<(), Errno> {
        match self.kind {
            // &mut self excludes references to the bytes that change.
            Kind::Anonymous => self.advise(Advice::LinuxDontNeed),
            Kind::File(_) => Err(Errno::INVAL),
        }
    }

    /// Bytes in the map.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Always false: an empty mapping cannot be made.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The memory of an anonymous map; `None` for a file's, whose bytes others may change.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self.kind {
            Kind::Anonymous => {
                // SAFETY: private memory of self.len bytes, zeroed by the kernel; to write it
                // takes &mut self.
                Some(unsafe { std::slice::from_raw_parts(self.first(), self.len) })
            }
            Kind::File(_) => None,
        }
    }

    /// Like [`Map::bytes`], to be written.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        match self.kind {
            Kind::Anonymous => {
                // SAFETY: as in `bytes`, and &mut self excludes every other reference.
                Some(unsafe { std::slice::from_raw_parts_mut(self.first(), self.len) })
            }
            Kind::File(_) => None,
        }
    }

    /// Maps every page now (MADV_POPULATE_READ or _WRITE, Linux 5.14): EINVAL on older kernels,
    /// EFAULT where a file has no page.
    pub fn populate(&mut self) -> Result<(), Errno> {
        self.advise(match self.kind {
            Kind::File(Access::Read) => Advice::LinuxPopulateRead,
            _ => Advice::LinuxPopulateWrite,
        })
    }

    /// Asks for huge pages (MADV_HUGEPAGE). EINVAL where the kernel has none.
    pub fn advise_huge(&self) -> Result<(), Errno> {
        self.advise(Advice::LinuxHugepage)
    }

    /// Asks for ordinary pages, also where the kernel gives everybody huge ones (MADV_NOHUGEPAGE).
    /// EINVAL where the kernel has no others.
    pub fn advise_small(&self) -> Result<(), Errno> {
        self.advise(Advice::LinuxNoHugepage)
    }

    /// Tells the kernel that the map is read once, from front to back (MADV_SEQUENTIAL).
    pub fn advise_sequential(&self) -> Result<(), Errno> {
        self.advise(Advice::Sequential)
    }

    /// `msync(2)`, MS_SYNC: what was written to the map is on stable storage.
    pub fn sync(&self) -> Result<(), Errno> {
        uncounted(Call::Fsync, || {
            // SAFETY: base and mapped are what mmap gave; MS_SYNC changes no memory.
            unsafe { rustix::mm::msync(self.base.as_ptr(), self.mapped, MsyncFlags::SYNC) }
        })
    }

    /// `write(2)`, or `pwrite(2)` when `out_at` is given, straight from the map. EFAULT, not
    /// SIGBUS, where the file has no page any more; EINVAL for a range outside the map.
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

    /// `read(2)`, or `pread(2)` when `in_at` is given, straight into the map; the mirror of
    /// [`Map::write_to`]. EFAULT also for a map made for reading.
    pub fn read_from(
        &mut self,
        range: Range<usize>,
        input: impl AsFd,
        in_at: Option<u64>,
    ) -> Result<usize, Errno> {
        let (into, len) = self.part(&range)?;
        let input = input.as_fd().as_raw_fd();
        let Some(at) = in_at else {
            return counted(Call::Read, len, |len| {
                // SAFETY: into..into+len is mapped (see `part`), and &mut self excludes
                // references to it; the kernel checks that it may be written.
                count(unsafe { libc::read(input, into.cast(), len) })
            });
        };
        let at = i64::try_from(at).map_err(|_| Errno::INVAL)?;
        counted(Call::Pread, len, |len| {
            // SAFETY: as above.
            count(unsafe { libc::pread64(input, into.cast(), len, at) })
        })
    }

    fn advise(&self, advice: Advice) -> Result<(), Errno> {
        // SAFETY: base and mapped are what mmap gave, and no advice used here changes bytes, except in
        // `forget`, which says why it may.
        unsafe { rustix::mm::madvise(self.base.as_ptr(), self.mapped, advice) }
    }

    fn first(&self) -> *mut u8 {
        // SAFETY: lead + len <= mapped, so the result lies inside the mapping.
        unsafe { self.base.as_ptr().cast::<u8>().add(self.lead) }
    }

    /// First byte and length of a range, if it lies inside the map.
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
        // SAFETY: base and mapped are what mmap gave; no reference outlives self.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr(), self.mapped) };
    }
}

/// Copies `range` of one map to byte `at` of another by a copy loop that survives a file
/// shrinking below it: the answer then says how far it got. No system call, but for the first use
/// in a process, which installs a SIGBUS handler; faults from elsewhere go on to the one before.
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
    if sink.kind == Kind::File(Access::Read) {
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

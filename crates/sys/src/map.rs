//! Memory mappings that stay safe if other processes write to the mapped file or truncate it.
//!
//! No Rust reference into a file mapping is ever created. Only system calls read the bytes of a file mapping. If a page
//! no longer exists, they return EFAULT, where a load would raise SIGBUS.

use crate::Errno;
use crate::fault::{Call, counted, uncounted};
use rustix::fd::{AsFd, AsRawFd};
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use rustix::param::page_size;
use std::ffi::c_void;
use std::ops::Range;
use std::ptr::NonNull;

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
    /// `true` if a file is mapped. Other processes may change its bytes.
    of_file: bool,
}

// SAFETY: a mapping belongs to the process, not to a thread; Map is its only owner.
unsafe impl Send for Map {}
// SAFETY: through &Map memory is only read; writing requires &mut Map.
unsafe impl Sync for Map {}

impl Map {
    /// Maps `len` bytes of a file from offset `at`, for reading. `at` need not be aligned. EINVAL for `len` 0. The file
    /// may be shorter than `at + len`; accesses past its last page then fault.
    pub fn of_file(fd: impl AsFd, at: u64, len: usize) -> Result<Self, Errno> {
        let lead = (at % page_size() as u64) as usize;
        let mapped = lead.checked_add(len).ok_or(Errno::OVERFLOW)?;
        if len == 0 || isize::try_from(mapped).is_err() {
            return Err(Errno::INVAL);
        }
        let (protection, flags, start) = (ProtFlags::READ, MapFlags::SHARED, at - lead as u64);
        let base = uncounted(Call::Mmap, || {
            // SAFETY: a null hint lets the kernel choose unused addresses.
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), mapped, protection, flags, fd, start) }
        })?;
        let base = NonNull::new(base).ok_or(Errno::NOMEM)?;
        Ok(Self { base, mapped, lead, len, of_file: true })
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
        let map = Self { base, mapped: len, lead: 0, len, of_file: false };
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
        let map = Self { base, mapped, lead, len, of_file: false };
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
        // `&mut self` guarantees that no reference to the bytes exists while they change.
        if self.of_file { Err(Errno::INVAL) } else { self.advise(Advice::LinuxDontNeed) }
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
        // SAFETY: private memory of self.len bytes, zeroed by the kernel; writing to it requires &mut self.
        (!self.of_file).then(|| unsafe { std::slice::from_raw_parts(self.first(), self.len) })
    }

    /// Like [`Map::bytes`], for writing.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        // SAFETY: as in `bytes`, and &mut self excludes every other reference.
        (!self.of_file).then(|| unsafe { std::slice::from_raw_parts_mut(self.first(), self.len) })
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

fn count(answer: isize) -> Result<usize, Errno> {
    usize::try_from(answer).map_err(|_| crate::io::last_errno())
}

#[cfg(test)]
mod tests;

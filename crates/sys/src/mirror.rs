//! A mapping of shared memory with a header and a doubled data area. The data is mapped twice, one
//! copy after the other. A range that wraps around the end of the data is therefore contiguous.
//!
//! The type returns only addresses. The caller's protocol must define when other processes may
//! write.

use crate::Errno;
use crate::fault::{Call, uncounted};
use rustix::fd::AsFd;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::param::page_size;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

/// Access to a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading. The descriptor must be open for reading.
    Read,
    /// Reading and writing. The descriptor must be open for both. Other processes see the writes.
    Write,
}

/// The mapping. It is unmapped when the last value that shares it is dropped.
#[derive(Debug)]
pub struct Mirror {
    /// A copy of the mapping's base, to save an indirection.
    base: NonNull<u8>,
    header: usize,
    data: usize,
    mapping: Arc<Mapping>,
}

// SAFETY: a mapping belongs to the process, not to a thread, and is unmapped with its last owner.
unsafe impl Send for Mirror {}
// SAFETY: &Mirror gives access to addresses only.
unsafe impl Sync for Mirror {}

/// Addresses to unmap.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: as for Mirror.
unsafe impl Send for Mapping {}
// SAFETY: as for Mirror.
unsafe impl Sync for Mapping {}

impl Mirror {
    /// Maps the first `header` bytes of a file once, and the `data` bytes after them twice. EINVAL
    /// if one of the two is not a multiple of the page size, or if `header` is 0. With `data` 0,
    /// maps only the header.
    pub fn map(fd: impl AsFd, header: usize, data: usize, access: Access) -> Result<Self, Errno> {
        let whole = data.checked_mul(2).and_then(|twice| twice.checked_add(header));
        let whole = whole.filter(|whole| isize::try_from(*whole).is_ok()).ok_or(Errno::INVAL)?;
        if header == 0 || !(header | data).is_multiple_of(page_size()) {
            return Err(Errno::INVAL);
        }
        let none = std::ptr::null_mut();
        // SAFETY: a null hint lets the kernel choose unused addresses.
        let base = unsafe {
            rustix::mm::mmap_anonymous(none, whole, ProtFlags::empty(), MapFlags::PRIVATE)
        }?;
        // From here on, dropping `mapping` unmaps all addresses, including replaced parts.
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        let mapping = Arc::new(Mapping { base, len: whole });
        let mirror = Self { base, header, data, mapping };
        mirror.place(&fd, 0, header + data, access)?;
        if data > 0 {
            mirror.place(&fd, header + data, data, access)?;
        }
        Ok(mirror)
    }

    /// Returns another owner of this mapping. It stays mapped until all owners are dropped.
    #[must_use]
    pub fn share(&self) -> Self {
        let Self { base, header, data, ref mapping } = *self;
        Self { base, header, data, mapping: mapping.clone() }
    }

    /// Maps a part of the file over a part of the reserved addresses. At 0, it maps header and
    /// data; at any other `at`, the second copy of the data.
    fn place(&self, fd: impl AsFd, at: usize, len: usize, access: Access) -> Result<(), Errno> {
        let protection = match access {
            Access::Read => ProtFlags::READ,
            Access::Write => ProtFlags::READ | ProtFlags::WRITE,
        };
        let from = if at == 0 { 0 } else { self.header };
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        uncounted(Call::Mmap, || {
            // SAFETY: at + len <= header + 2 * data, the reserved length.
            let address = unsafe { self.base.add(at) }.as_ptr().cast();
            // SAFETY: the addresses replaced are those reserved for this Mirror, unused so far.
            unsafe { rustix::mm::mmap(address, len, protection, flags, fd, from as u64) }
        })?;
        Ok(())
    }

    /// Returns the address of the header's first byte. It is valid for [`Mirror::header_len`] bytes
    /// while `self` lives.
    pub fn header(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the length of the header in bytes.
    pub fn header_len(&self) -> usize {
        self.header
    }

    /// Returns the address of the first data byte. It is valid for twice [`Mirror::data_len`] bytes
    /// while `self` lives. Byte `n` and byte `n + data_len` are the same memory.
    pub fn data(&self) -> NonNull<u8> {
        // SAFETY: header is inside the mapping, or at its end if there is no data.
        unsafe { self.base.add(self.header) }
    }

    /// Returns the length of the data in bytes, counted once.
    pub fn data_len(&self) -> usize {
        self.data
    }

    /// Maps every page now (MADV_POPULATE_READ or _WRITE, Linux 5.14). EINVAL on older kernels.
    pub fn populate(&self, access: Access) -> Result<(), Errno> {
        let advice = match access {
            Access::Read => Advice::LinuxPopulateRead,
            Access::Write => Advice::LinuxPopulateWrite,
        };
        let (base, len) = (self.base.as_ptr().cast::<c_void>(), self.mapping.len);
        // SAFETY: the range belongs to this mapping, and populating changes no bytes.
        unsafe { rustix::mm::madvise(base, len, advice) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range belongs to this mapping. All users of its addresses borrow a Mirror
        // that shares the mapping.
        let answer = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(answer.is_ok(), "munmap of our own mapping: {answer:?}");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_written_past_the_end_is_at_the_beginning() {
        let page = page_size();
        let fd = crate::memfd::create("mirror", 2 * page as u64).unwrap();
        let writer = Mirror::map(&fd, page, page, Access::Write).unwrap();
        let reader = Mirror::map(&fd, page, page, Access::Read).unwrap();
        assert_eq!((reader.header_len(), reader.data_len()), (page, page));
        let _ = writer.populate(Access::Write);
        // SAFETY: the second half of the doubled data area.
        let last = unsafe { writer.data().add(page + 3) };
        // SAFETY: mapped for writing, and nothing else refers to it.
        unsafe { last.write(7) };
        // SAFETY: within the data area.
        let first = unsafe { reader.data().add(3) };
        // SAFETY: mapped for reading.
        assert_eq!(unsafe { first.read() }, 7);
        let mut byte = [0];
        crate::io::pread(&fd, &mut byte, page as u64 + 3).unwrap();
        assert_eq!(byte, [7]);
    }

    #[test]
    fn a_shared_mapping_stays_until_the_last_has_gone() {
        let page = page_size();
        let fd = crate::memfd::create("mirror", 2 * page as u64).unwrap();
        crate::io::pwrite(&fd, &[9], page as u64).unwrap();
        let first = Mirror::map(&fd, page, page, Access::Read).unwrap();
        let second = first.share();
        assert_eq!(first.data(), second.data());
        drop(first);
        // SAFETY: mapped for reading, as long as `second` lives.
        assert_eq!(unsafe { second.data().read() }, 9);
    }

    #[test]
    fn odd_sizes_are_refused() {
        let page = page_size();
        let fd = crate::memfd::create("mirror", 2 * page as u64).unwrap();
        for (header, data) in [(0, page), (page, 1), (1, page), (page, usize::MAX - page + 1)] {
            let refused = Mirror::map(&fd, header, data, Access::Read).err();
            assert_eq!(refused, Some(Errno::INVAL), "{header} {data}");
        }
        Mirror::map(&fd, page, 0, Access::Read).unwrap();
    }
}

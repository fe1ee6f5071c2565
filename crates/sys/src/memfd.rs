//! Anonymous shared memory (`memfd_create(2)`) and its seals. A seal is a guarantee for the
//! processes that share the memory.

use crate::Errno;
use crate::fault::{Call, gate, uncounted};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};

/// `linux/magic.h`. A memfd is a file on an internal tmpfs of the kernel.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Properties of the memory behind a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemfdFacts {
    /// Length in bytes.
    pub len: u64,
    /// `true` if the memory can neither grow nor shrink. Shrinking would make a mapping fault.
    pub fixed_size: bool,
    /// `true` if only processes that already had a writable mapping can write it.
    pub one_writer: bool,
    /// `true` for ordinary pages. Huge pages may run out when they are touched, which raises
    /// SIGBUS.
    pub ordinary: bool,
}

/// A failed system call of a function that makes several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedCall {
    /// The name of the system call.
    pub call: &'static str,
    /// The kernel's error.
    pub errno: Errno,
}

impl FailedCall {
    /// Returns a function for `map_err` that adds the name of the system call.
    pub fn of(call: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| Self { call, errno }
    }
}

/// Creates memory of `len` zero bytes. Allocates all of it now, so that a lack of memory is an
/// error here instead of a signal later. If the kernel supports it, the memory is not executable.
/// Makes up to four calls, and repeats fallocate on EINTR.
pub fn create(name: &str, len: u64) -> Result<OwnedFd, FailedCall> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = uncounted(Call::MemfdCreate, || {
        // With vm.memfd_noexec = 2 the flag is required; before Linux 6.3 it is rejected.
        match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
            Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags),
            answer => answer,
        }
    })
    .map_err(FailedCall::of("memfd_create"))?;
    set_size(&fd, len)?;
    // A signal may interrupt the allocation of a large block (EINTR).
    rustix::io::retry_on_intr(|| {
        gate(Call::Fallocate, 0)?;
        rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, len)
    })
    .map_err(FailedCall::of("fallocate"))?;
    Ok(fd)
}

/// Sets the size of new memory. Retries EINTR (ftruncate(2)).
pub(crate) fn set_size(fd: impl AsFd, len: u64) -> Result<(), FailedCall> {
    rustix::io::retry_on_intr(|| crate::io::ftruncate(&fd, len))
        .map_err(FailedCall::of("ftruncate"))
}

/// Seals memory that its creator has mapped for writing. The size is then fixed, and no other
/// process can create a writable mapping. EINVAL before Linux 5.1 (F_SEAL_FUTURE_WRITE).
pub fn seal_for_one_writer(fd: impl AsFd) -> Result<(), Errno> {
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(fd, seals)
}

/// Returns the properties. EINVAL for objects without seals: ordinary files, pipes, sockets. Makes
/// three calls.
pub fn facts(fd: impl AsFd) -> Result<MemfdFacts, Errno> {
    let fd = fd.as_fd();
    let seals = rustix::fs::fcntl_get_seals(fd)?;
    let known = rustix::fs::fstat(fd)?;
    let system = rustix::fs::fstatfs(fd)?;
    Ok(MemfdFacts {
        len: u64::try_from(known.st_size).map_err(|_| Errno::INVAL)?,
        fixed_size: seals.contains(SealFlags::SHRINK | SealFlags::GROW),
        one_writer: seals.intersects(SealFlags::FUTURE_WRITE | SealFlags::WRITE),
        ordinary: system.f_type as u64 == TMPFS_MAGIC,
    })
}

/// Returns `true` if every page is allocated, in memory or in swap. A missing page is charged to
/// the process that first touches it. That may be the reader of memory that another process passed.
/// Makes one call.
pub fn is_whole(fd: impl AsFd) -> bool {
    // `st_blocks` is in units of 512 bytes, whatever st_blksize is (stat(2)).
    let whole = |known: rustix::fs::Stat| {
        let taken = u64::try_from(known.st_blocks).unwrap_or(0).saturating_mul(512);
        u64::try_from(known.st_size).is_ok_and(|len| taken >= len)
    };
    rustix::fs::fstat(fd).is_ok_and(whole)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::region::{Region, Sharing};

    #[test]
    fn memory_with_holes_is_distinguished_from_complete_memory() {
        for len in [1, 4096, 3 << 20] {
            let fd = create("test", len).unwrap();
            assert!(is_whole(&fd), "{len}");
            rustix::fs::ftruncate(&fd, len + (64 << 20)).unwrap();
            assert!(!is_whole(&fd), "{len}");
        }
    }

    #[test]
    fn sealed_memory_keeps_its_size_and_its_one_writer() {
        let fd = create("test", 8192).unwrap();
        let open = MemfdFacts { len: 8192, fixed_size: false, one_writer: false, ordinary: true };
        assert_eq!(facts(&fd), Ok(open));
        let writer = Region::of_file(&fd, 8192, Sharing::Write).unwrap();
        seal_for_one_writer(&fd).unwrap();
        assert_eq!(facts(&fd), Ok(MemfdFacts { fixed_size: true, one_writer: true, ..open }));
        assert_eq!(Region::of_file(&fd, 8192, Sharing::Write).err(), Some(Errno::PERM));
        assert_eq!(crate::io::ftruncate(&fd, 0), Err(Errno::PERM));
        assert_eq!(crate::io::pwrite(&fd, b"x", 0), Err(Errno::PERM));
        // SAFETY: the first of 8192 bytes that are mapped for writing; nothing refers to them.
        unsafe { writer.as_ptr().write(7) };
        let mut got = [0];
        crate::io::pread(&fd, &mut got, 0).unwrap();
        assert_eq!(got, [7]);
    }

    #[test]
    fn an_error_of_sealing_is_reported() {
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        assert_eq!(facts(&reader), Err(Errno::INVAL));
    }
}

//! Access to the memory of another process, by process_vm_readv and process_vm_writev.
//!
//! A pid may be reused once its process has ended. Hold a pidfd, and check it before and after each
//! access. The kernel permits access to processes that the caller may trace (ptrace(2)).

use crate::Errno;
use crate::fault::{Call, counted};
use crate::io::last_errno;

/// `process_vm_readv(2)`: reads up to `into.len()` bytes from address `at` of process `pid`.
///
/// A short count means that the remaining bytes have no page. EFAULT: the first byte has no page.
/// EPERM: not allowed (another user, not dumpable, Yama, seccomp). ESRCH: the process does not
/// exist. ENOSYS: not available here.
pub fn read(pid: i32, at: u64, into: &mut [u8]) -> Result<usize, Errno> {
    counted(Call::ProcessVmReadv, into.len(), |len| {
        let near = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: len };
        let far = libc::iovec { iov_base: address(at)?, iov_len: len };
        // SAFETY: the near vector is inside `into`. The kernel checks the far one, and only reads
        // it.
        count(unsafe { libc::process_vm_readv(pid, &raw const near, 1, &raw const far, 1, 0) })
    })
}

/// `process_vm_writev(2)`: writes up to `from.len()` bytes to address `at` of process `pid`.
/// Results and errors are those of [`read`].
///
/// # Safety
/// The process `pid` must have reserved those bytes for this caller until it learns that they were
/// written. Until then, no reference to those bytes may exist in that process. This also applies if
/// `pid` is this process.
pub unsafe fn write(pid: i32, at: u64, from: &[u8]) -> Result<usize, Errno> {
    counted(Call::ProcessVmWritev, from.len(), |len| {
        let near = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: len };
        let far = libc::iovec { iov_base: address(at)?, iov_len: len };
        // SAFETY: the kernel only reads the near vector, which is inside `from`; the caller's
        // contract covers the far one.
        count(unsafe { libc::process_vm_writev(pid, &raw const near, 1, &raw const far, 1, 0) })
    })
}

fn address(at: u64) -> Result<*mut libc::c_void, Errno> {
    usize::try_from(at).map(|at| at as *mut libc::c_void).map_err(|_| Errno::FAULT)
}

fn count(answer: isize) -> Result<usize, Errno> {
    usize::try_from(answer).map_err(|_| last_errno())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn own() -> i32 {
        rustix::process::getpid().as_raw_nonzero().get()
    }

    #[test]
    fn our_own_memory_can_be_read_and_written_as_another_would() {
        let (source, mut sink) = (b"0123456789".to_vec(), vec![0; 10]);
        match read(own(), source.as_ptr() as u64, &mut sink) {
            Ok(count) => assert_eq!(&sink[..count], b"0123456789"),
            // If a seccomp filter refuses the call, there is nothing more to test.
            Err(errno) => return assert!(matches!(errno, Errno::PERM | Errno::NOSYS)),
        }
        let at = sink.as_mut_ptr() as u64;
        // SAFETY: `sink` is not accessed until the call has returned.
        assert_eq!(unsafe { write(own(), at, b"abc") }, Ok(3));
        assert_eq!(&sink[..4], b"abc3");
    }

    #[test]
    fn what_is_not_there_is_an_answer() {
        let mut sink = [0; 8];
        assert!(read(own(), 8, &mut sink).is_err());
        let gone = std::process::Command::new("true").spawn().unwrap();
        let pid = gone.id() as i32;
        gone.wait_with_output().unwrap();
        assert!(read(pid, 4096, &mut sink).is_err());
        assert!(read(own(), u64::MAX, &mut sink).is_err());
    }
}

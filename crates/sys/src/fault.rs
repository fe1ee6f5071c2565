//! The fault seam: a hook that runs before every call of this crate that moves data, accepts connections or waits for
//! them.
//!
//! With the feature `faults`, a test can script short counts, errno values and zeros. Without it, the seam compiles to
//! nothing. The seam never changes bytes, only the result of a call.

use crate::{Errno, tally};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

#[cfg(feature = "faults")]
mod script;
#[cfg(feature = "faults")]
pub use script::{CallCounts, Effect, Rule, Script, ScriptRun};

/// A system call that the seam intercepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// `read(2)`, `recv(2)`, and `preadv2(2)` at the descriptor's own offset
    Read,
    /// `pread(2)`
    Pread,
    /// `write(2)`, and `send(2)` without zero copy
    Write,
    /// `pwrite(2)`
    Pwrite,
    /// `copy_file_range(2)`
    CopyFileRange,
    /// `sendfile(2)`
    Sendfile,
    /// `splice(2)`
    Splice,
    /// `tee(2)`
    Tee,
    /// `vmsplice(2)`
    Vmsplice,
    /// `ioctl(2)` with FICLONE or FICLONERANGE
    Clone,
    /// `mmap(2)` of a file
    Mmap,
    /// a read through io_uring
    UringRead,
    /// a write through io_uring
    UringWrite,
    /// `send(2)` with MSG_ZEROCOPY
    SendZerocopy,
    /// `fsync(2)`, `fdatasync(2)` and `msync(2)`
    Fsync,
    /// `syncfs(2)`
    Syncfs,
    /// `fallocate(2)`
    Fallocate,
    /// `ftruncate(2)`
    Ftruncate,
    /// `renameat2(2)`
    Rename,
    /// `linkat(2)`
    Link,
    /// `process_vm_readv(2)`
    ProcessVmReadv,
    /// `process_vm_writev(2)`
    ProcessVmWritev,
    /// `memfd_create(2)`
    MemfdCreate,
    /// `futex_waitv(2)`
    FutexWaitv,
    /// `accept4(2)`
    Accept,
    /// `epoll_wait(2)`
    EpollWait,
}

impl Call {
    /// Every call, in the order of the enum.
    pub const ALL: [Self; 26] = [
        Self::Read,
        Self::Pread,
        Self::Write,
        Self::Pwrite,
        Self::CopyFileRange,
        Self::Sendfile,
        Self::Splice,
        Self::Tee,
        Self::Vmsplice,
        Self::Clone,
        Self::Mmap,
        Self::UringRead,
        Self::UringWrite,
        Self::SendZerocopy,
        Self::Fsync,
        Self::Syncfs,
        Self::Fallocate,
        Self::Ftruncate,
        Self::Rename,
        Self::Link,
        Self::ProcessVmReadv,
        Self::ProcessVmWritev,
        Self::MemfdCreate,
        Self::FutexWaitv,
        Self::Accept,
        Self::EpollWait,
    ];

    /// Returns the name used in kernel manuals.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Pread => "pread",
            Self::Write => "write",
            Self::Pwrite => "pwrite",
            Self::CopyFileRange => "copy_file_range",
            Self::Sendfile => "sendfile",
            Self::Splice => "splice",
            Self::Tee => "tee",
            Self::Vmsplice => "vmsplice",
            Self::Clone => "FICLONERANGE",
            Self::Mmap => "mmap",
            Self::UringRead => "IORING_OP_READ",
            Self::UringWrite => "IORING_OP_WRITE",
            Self::SendZerocopy => "MSG_ZEROCOPY",
            Self::Fsync => "fsync",
            Self::Syncfs => "syncfs",
            Self::Fallocate => "fallocate",
            Self::Ftruncate => "ftruncate",
            Self::Rename => "renameat2",
            Self::Link => "linkat",
            Self::ProcessVmReadv => "process_vm_readv",
            Self::ProcessVmWritev => "process_vm_writev",
            Self::MemfdCreate => "memfd_create",
            Self::FutexWaitv => "futex_waitv",
            Self::Accept => "accept4",
            Self::EpollWait => "epoll_wait",
        }
    }

    /// Returns `true` if the call returns a count of bytes or events. For other calls, a rule can inject an errno, but
    /// a short count or 0 has no effect.
    pub const fn counts_bytes(self) -> bool {
        !matches!(
            self,
            Self::Clone
                | Self::Mmap
                | Self::Fsync
                | Self::Syncfs
                | Self::Fallocate
                | Self::Ftruncate
                | Self::Rename
                | Self::Link
                | Self::MemfdCreate
                | Self::FutexWaitv
                | Self::Accept
        )
    }
}

/// The script, if any, and the call counter of the thread that created this value. That thread passes the value to each
/// thread that it starts.
#[derive(Clone, Debug)]
pub struct Inherited {
    starter: Arc<AtomicU64>,
    #[cfg(feature = "faults")]
    state: script::Installed,
}

/// Captures the state that a new thread is to inherit. A mechanism calls this before it starts a thread, and calls
/// [`Inherited::enter`] inside that thread. Otherwise, faults do not reach the thread, and its calls are not counted.
#[inline]
pub fn inherit() -> Inherited {
    Inherited {
        starter: tally::helpers(),
        #[cfg(feature = "faults")]
        state: script::installed(),
    }
}

impl Inherited {
    /// Runs `body` under the inherited script, which counts the calls of this thread and of the starting thread
    /// together. At the end, adds the number of calls that `body` made to the starting thread's counter.
    #[inline]
    pub fn enter<R>(self, body: impl FnOnce() -> R) -> R {
        #[cfg(feature = "faults")]
        let _restore = script::install(self.state);
        tally::handing_in(self.starter, body)
    }
}

/// Asks the script about one call that would move `len` bytes.
///
/// `Some(n)`: make the call with at most `n` bytes. `None`: do not make the call, and return 0.
#[inline]
#[cfg_attr(not(feature = "faults"), allow(clippy::unnecessary_wraps))]
pub(crate) fn gate(call: Call, len: usize) -> Result<Option<usize>, Errno> {
    #[cfg(feature = "faults")]
    return script::decide(call, len);
    #[cfg(not(feature = "faults"))]
    {
        let _ = call;
        Ok(Some(len))
    }
}

/// Makes a call that returns a count. `make` gets the permitted length.
#[inline]
pub(crate) fn counted(
    call: Call,
    len: usize,
    make: impl FnOnce(usize) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    match gate(call, len)? {
        Some(permitted) => {
            tally::one();
            make(permitted)
        }
        None => Ok(0),
    }
}

/// Makes a call that returns no count.
#[inline]
pub(crate) fn uncounted<T>(
    call: Call,
    make: impl FnOnce() -> Result<T, Errno>,
) -> Result<T, Errno> {
    gate(call, 0)?;
    tally::one();
    make()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_listed_once_in_order_with_its_own_name() {
        for (at, call) in Call::ALL.iter().enumerate() {
            assert_eq!(*call as usize, at);
            assert_eq!(Call::ALL.iter().filter(|other| other.name() == call.name()).count(), 1);
        }
    }

    #[test]
    fn without_a_script_everything_passes() {
        assert_eq!(gate(Call::Read, 7), Ok(Some(7)));
        assert_eq!(inherit().enter(|| 5), 5);
    }
}

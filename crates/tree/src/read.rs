//! Reads files that are only read: whole buffers, at offsets, until they end.

use rustix::fs::{Advice, Mode, OFlags, fadvise, openat};
use std::{
    ffi::CStr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};
use thalweg_sys::{Errno, io};

/// What was listed as a file may be a FIFO by now: it is not waited for.
pub(crate) const TO_READ: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Opens a file to be read.
pub(crate) fn open(dir: impl AsFd, name: &CStr, follow: bool) -> Result<OwnedFd, Errno> {
    let no_follow = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
    openat(dir, name, TO_READ | no_follow, Mode::empty())
}

/// Has the kernel let go of what it holds of a file in memory, so that the device is read.
pub fn forget_cached(fd: impl AsFd) {
    // Advice: no answer is worth stopping for.
    let _ = fadvise(fd, 0, None, Advice::DontNeed);
}

/// Reads until the buffer is full or the file ends; returns how much there was.
pub(crate) fn fill(fd: BorrowedFd<'_>, buffer: &mut [u8], at: u64) -> Result<usize, Errno> {
    let mut len = 0;
    while let Some(rest) = buffer.get_mut(len..).filter(|rest| !rest.is_empty()) {
        match io::pread(fd, rest, at + len as u64) {
            Ok(0) => break,
            Ok(got) => len += got,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(len)
}

//! Reads files that are only read: whole buffers, at offsets, until they end.

use rustix::fs::{Advice, Mode, OFlags, fadvise, fstat, openat};
use std::{
    ffi::CStr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};
use thalweg_sys::{Errno, io};

use crate::identity::size;

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

/// How far apart the places are that are looked at, at least.
const STRIDE: u64 = 64 << 10;
/// How many places are looked at, at most.
const MOST_PLACES: u64 = 1024;

/// Syncs a file and drops its clean pages from the page cache, so that what is read next comes from the device. Returns
/// `false` if the kernel still has pages of it (another process has them mapped, or the file system has no device) or
/// does not say: then it may be read from memory.
pub fn drop_cached(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    io::sync_data(fd)?;
    forget_cached(fd);
    // Without this the first look would start read-ahead, and the next one would find its pages.
    let _ = fadvise(fd, 0, None, Advice::Random);
    let is_dropped = is_nothing_cached(fd);
    let _ = fadvise(fd, 0, None, Advice::Normal);
    is_dropped
}

fn is_nothing_cached(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    let len = size(&fstat(fd)?);
    let stride = STRIDE.max(len / MOST_PLACES);
    let mut at = 0;
    while at < len {
        match io::pread_cached(fd, &mut [0; 1], at) {
            // Not in memory.
            Err(Errno::AGAIN) => at += stride,
            Err(Errno::INTR) => {}
            Ok(_) | Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => return Ok(false),
            Err(errno) => return Err(errno),
        }
    }
    Ok(true)
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

//! Reads files at offsets, in whole buffers.

use rustix::fs::{Advice, Mode, OFlags, fadvise, fstat, openat};
use std::{
    ffi::CStr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};
use thalweg_sys::{Errno, io};

use crate::identity::size;

/// Flags to open a file for reading. A listed file may have become a FIFO, and `O_NONBLOCK` avoids the wait for a
/// writer.
pub(crate) const TO_READ: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Opens a file for reading.
pub(crate) fn open(dir: impl AsFd, name: &CStr, follow: bool) -> Result<OwnedFd, Errno> {
    let no_follow = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
    openat(dir, name, TO_READ | no_follow, Mode::empty())
}

/// Asks the kernel to drop the cached pages of a file, so that the next read comes from the device.
pub fn forget_cached(fd: impl AsFd) {
    // posix_fadvise(2) only gives advice, so a failure does not matter.
    let _ = fadvise(fd, 0, None, Advice::DontNeed);
}

/// Announces to the kernel that a whole file will be read. The kernel then reads ahead twice as much.
pub(crate) fn announce_whole(fd: impl AsFd) {
    let _ = fadvise(fd, 0, None, Advice::Sequential);
}

/// Minimum distance of the offsets that are probed.
const STRIDE: u64 = 64 << 10;
/// Maximum number of offsets that are probed.
const MOST_PLACES: u64 = 1024;

/// Syncs a file and drops its clean pages from the page cache, so that the next read comes from the device. Returns
/// `false` if the file may still be read from memory. Another process may have mapped the file, the file system may
/// have no device, or the kernel may be unable to report cached pages.
pub fn drop_cached(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    io::sync_data(fd)?;
    forget_cached(fd);
    // Without this advice, a probe would start a read-ahead, and later probes would find its pages in memory.
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
            // EAGAIN means that the page is not in memory.
            Err(Errno::AGAIN) => at += stride,
            Err(Errno::INTR) => {}
            Ok(_) | Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => return Ok(false),
            Err(errno) => return Err(errno),
        }
    }
    Ok(true)
}

//! A second open file description of the same file, so that flags and offsets of the caller's
//! stay as they are.

use rustix::fs::{Mode, OFlags, fcntl_getfl, open};
use std::os::fd::{AsRawFd, OwnedFd};
use thalweg_sys::Errno;

use crate::End;

/// Opens the file behind `end` again through /proc. What the caller's flags promise about the
/// sink's storage (`O_SYNC`) is kept. EBADF for more than the caller's descriptor may do: /proc
/// asks the file's mode, and would let a descriptor for reading be written through.
///
/// Closing it later releases the POSIX record locks this process holds on the file (fcntl(2)).
pub fn reopen(end: &End<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
    let has = fcntl_getfl(end.fd)?;
    let (may, wants) = (has & OFlags::RWMODE, flags & OFlags::RWMODE);
    if has.contains(OFlags::PATH) || may != OFlags::RDWR && may != wants {
        return Err(Errno::BADF);
    }
    let promised = has & (OFlags::SYNC | OFlags::DSYNC);
    let path = format!("/proc/self/fd/{}", end.fd.as_raw_fd());
    open(path, flags | promised | OFlags::CLOEXEC, Mode::empty())
}

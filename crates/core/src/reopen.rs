//! Opens a second file description of a file, so that flags and offset of the caller's descriptor
//! do not change.

use rustix::fs::{Mode, OFlags, fcntl_getfl, open};
use std::os::fd::{AsRawFd, OwnedFd};
use thalweg_sys::Errno;

use crate::End;

/// Opens the file behind `end` again through /proc. The caller's `O_SYNC` and `O_DSYNC` are kept,
/// as they are guarantees for the sink's storage. Fails with EBADF if `flags` asks for more access
/// than the caller's descriptor has. This check is necessary because /proc checks only the file's
/// mode, and would allow writing through a descriptor for reading.
///
/// Closing the new descriptor later releases the POSIX record locks this process holds on the file
/// (fcntl(2)).
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

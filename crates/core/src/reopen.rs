//! Opens a second file description of a file, so that the flags and the offset of the caller's
//! descriptor do not change.

use rustix::fs::{Mode, OFlags, fcntl_getfl, open};
use std::os::fd::{AsRawFd, OwnedFd};
use thalweg_sys::Errno;

use crate::End;

/// Opens the file behind `end` again through /proc. Keeps the caller's `O_SYNC` and `O_DSYNC`,
/// because they guarantee that data is stored. Fails with EBADF if `flags` requires more access
/// than the caller's descriptor has. Without this check, a descriptor for reading could be used for
/// writing, because /proc checks only the file's mode.
///
/// When the new descriptor is closed, this process loses its POSIX record locks on the file
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

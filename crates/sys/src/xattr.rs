//! Extended attributes of an entry that is not opened.

use std::{
    ffi::CStr,
    os::fd::{AsRawFd, BorrowedFd},
    sync::atomic::{AtomicBool, Ordering},
};

use crate::{Errno, io::last_errno};

/// `listxattrat(2)`, new in Linux 6.13. Its number is the same on all 64-bit architectures of Rust except MIPS, where
/// no system call has this number.
const LISTXATTRAT: libc::c_long = 465;

/// `true` after the first ENOSYS. An older kernel then costs only one call per process.
static IS_MISSING: AtomicBool = AtomicBool::new(false);

/// Writes the names of the extended attributes of `name` in `dir` to `buffer`, each with a NUL at its end. Returns
/// their length in bytes. `follows` is `true` to follow a symbolic link at the end of `name`. ERANGE if `buffer` is too
/// small, ENOTSUP if the file system has no attributes. `None` if the kernel or a seccomp filter refuses the call.
pub fn list_at(
    dir: BorrowedFd<'_>,
    name: &CStr,
    follows: bool,
    buffer: &mut [u8],
) -> Option<Result<usize, Errno>> {
    if IS_MISSING.load(Ordering::Relaxed) {
        return None;
    }
    let flags = if follows { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
    let (fd, list) = (dir.as_raw_fd(), buffer.as_mut_ptr());
    // SAFETY: `name` ends with a NUL, and the kernel writes at most `buffer.len()` bytes to `list`.
    let answer =
        unsafe { libc::syscall(LISTXATTRAT, fd, name.as_ptr(), flags, list, buffer.len()) };
    match usize::try_from(answer) {
        Ok(len) => Some(Ok(len)),
        Err(_) => match last_errno() {
            Errno::NOSYS => {
                IS_MISSING.store(true, Ordering::Relaxed);
                None
            }
            // Older seccomp filters return EPERM. No file system returns it.
            Errno::PERM => None,
            errno => Some(Err(errno)),
        },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::list_at;
    use crate::Errno;
    use rustix::fs::{XattrFlags, setxattr};
    use std::{fs, os::fd::AsFd, os::unix::fs::symlink};

    #[test]
    fn a_link_is_followed_only_on_request_and_a_small_buffer_is_an_error() {
        let place = tempfile::tempdir_in("/var/tmp").unwrap();
        fs::write(place.path().join("file"), "").unwrap();
        symlink("file", place.path().join("link")).unwrap();
        let set = setxattr(place.path().join("file"), "user.a", b"1", XattrFlags::empty());
        let dir = fs::File::open(place.path()).unwrap();
        let list = |name, follows, buffer: &mut [u8]| list_at(dir.as_fd(), name, follows, buffer);
        let mut room = [0; 64];
        let Some(listed) = list(c"file", false, &mut room) else { return };
        if set.is_err() {
            return;
        }
        assert_eq!((listed, &room[..7]), (Ok(7), &b"user.a\0"[..]));
        assert_eq!(list(c"link", true, &mut room), Some(Ok(7)));
        assert_ne!(list(c"link", false, &mut room), Some(Ok(7)));
        assert_eq!(list(c"file", false, &mut [0; 3]), Some(Err(Errno::RANGE)));
        assert_eq!(list(c"gone", false, &mut room), Some(Err(Errno::NOENT)));
    }
}

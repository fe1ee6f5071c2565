//! Changes mode and times of the file behind an `O_PATH` descriptor. A change by name could affect another file.

use rustix::fs::{AtFlags, CWD, Mode, Timestamps, chmodat, utimensat};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use crate::{Errno, io::last_errno};

/// Changes the mode of the file behind `fd`, which may have been opened with `O_PATH | O_NOFOLLOW`. Does not follow
/// symbolic links. It does not matter if the file's name now leads to another file.
///
/// Makes up to two calls: `fchmodat2(2)` is new in Linux 6.6, and older seccomp filters refuse it. The fallback goes
/// through `/proc/self/fd`.
pub fn chmod_opened(fd: impl AsFd, mode: u32) -> Result<(), Errno> {
    let fd = fd.as_fd();
    match fchmodat2(fd, mode) {
        Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => {
            chmodat(CWD, link_to(fd), Mode::from_raw_mode(mode), AtFlags::empty())
        }
        answer => answer,
    }
}

/// Sets the times of the file behind `fd`, which may be a symbolic link.
///
/// Makes up to two calls: `utimensat(2)` supports `AT_EMPTY_PATH` since Linux 5.8. The fallback goes through
/// `/proc/self/fd`.
pub fn set_times_opened(fd: impl AsFd, times: &Timestamps) -> Result<(), Errno> {
    let fd = fd.as_fd();
    match utimensat(fd, c"", times, AtFlags::EMPTY_PATH) {
        Err(Errno::INVAL | Errno::NOENT) => utimensat(CWD, link_to(fd), times, AtFlags::empty()),
        answer => answer,
    }
}

/// Returns a path that leads to the file behind `fd`. If that file is a symbolic link, the link is not followed.
fn link_to(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

fn fchmodat2(fd: BorrowedFd<'_>, mode: u32) -> Result<(), Errno> {
    let (fd, flags) = (fd.as_raw_fd(), libc::AT_EMPTY_PATH);
    // SAFETY: the path is a constant with a NUL; the other arguments are numbers.
    let answer = unsafe { libc::syscall(libc::SYS_fchmodat2, fd, c"".as_ptr(), mode, flags) };
    if answer == 0 { Ok(()) } else { Err(last_errno()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rustix::fs::{FileType, OFlags, mknodat, openat};
    use std::{fs, os::unix::fs::PermissionsExt};

    #[test]
    fn the_mode_goes_to_what_was_opened_and_never_through_a_link() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let mode = |name: &str| fs::metadata(at(name)).unwrap().permissions().mode() & 0o7777;
        mknodat(CWD, at("fifo"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        fs::write(at("secret"), "").unwrap();
        fs::set_permissions(at("secret"), fs::Permissions::from_mode(0o600)).unwrap();
        let open = |name: &str| {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(CWD, at(name), flags, Mode::empty()).unwrap()
        };
        let fifo = open("fifo");
        fs::rename(at("fifo"), at("moved")).unwrap();
        std::os::unix::fs::symlink("secret", at("fifo")).unwrap();
        chmod_opened(&fifo, 0o666).unwrap();
        assert_eq!((mode("moved"), mode("secret")), (0o666, 0o600));
        assert!(chmod_opened(open("fifo"), 0o666).is_err());
        assert_eq!(mode("secret"), 0o600);
        let then = rustix::fs::Timespec { tv_sec: 1, tv_nsec: 2 };
        let times = Timestamps { last_access: then, last_modification: then };
        set_times_opened(open("fifo"), &times).unwrap();
        set_times_opened(&fifo, &times).unwrap();
        let mtime = |name: &str| rustix::fs::lstat(at(name)).unwrap().st_mtime;
        assert_eq!([mtime("fifo"), mtime("moved")], [1, 1]);
        assert_ne!(mtime("secret"), 1);
    }
}

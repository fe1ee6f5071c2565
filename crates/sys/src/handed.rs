//! Socket activation: sockets that a service manager opened and passed to this process at its start (sd_listen_fds(3)).

use crate::Errno;
use crate::io::last_errno;
use rustix::fd::{FromRawFd, OwnedFd, RawFd};

// By convention, the passed descriptors follow the three standard ones.
const FIRST: RawFd = 3;
/// Maximum number of descriptors that are taken over.
pub const MOST: RawFd = 1000;

/// Returns duplicates of the descriptors meant for this process, according to LISTEN_PID and LISTEN_FDS. The original
/// descriptors stay open, because other code may have reused their numbers.
pub fn sockets() -> Result<Vec<OwnedFd>, Errno> {
    let variable = |name: &str| std::env::var(name).ok();
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    let (for_pid, fds) = (variable("LISTEN_PID"), variable("LISTEN_FDS"));
    let end = FIRST + count(for_pid.as_deref(), fds.as_deref(), pid);
    (FIRST..end).map(|fd| duplicate(fd, end)).collect()
}

/// Returns the number of descriptors for the process `pid`, according to the values of LISTEN_PID and LISTEN_FDS.
pub fn count(for_pid: Option<&str>, fds: Option<&str>, pid: i32) -> RawFd {
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<RawFd>().ok());
    if number(for_pid) != Some(pid) {
        return 0;
    }
    number(fds).unwrap_or(0).clamp(0, MOST)
}

/// Duplicates a descriptor to a number of at least `least`, because lower numbers are those of passed descriptors.
fn duplicate(fd: RawFd, least: RawFd) -> Result<OwnedFd, Errno> {
    // SAFETY: takes numbers only. If `fd` is not open the call returns EBADF, and an open descriptor is not changed.
    let duplicate = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, least) };
    if duplicate == -1 {
        return Err(last_errno());
    }
    // SAFETY: the kernel has just created this descriptor, and no other code knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(duplicate) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::process::{Command, Stdio};

    const CHILD: &str = "THALWEG_HANDED_CHILD";

    /// Runs as a separate process, started by the test below.
    #[test]
    fn handed_child() {
        let Ok(expected) = std::env::var(CHILD) else { return };
        let found = sockets().map(|sockets| sockets.len());
        let expected = expected.parse().map_err(|_| Errno::BADF);
        assert_eq!(found, expected);
    }

    #[test]
    fn what_was_handed_over_to_this_process_is_found() {
        let cases = [
            ("LISTEN_PID=$$ LISTEN_FDS=2", "2"),
            ("LISTEN_PID=1 LISTEN_FDS=2", "0"),
            ("LISTEN_PID=$$ LISTEN_FDS=many", "0"),
            ("LISTEN_PID=$$ LISTEN_FDS=900", "not open"),
            ("", "0"),
        ];
        for (variables, expected) in cases {
            let line = format!(
                "exec 3</dev/null 4</dev/null; export {variables}; \
                 exec \"$0\" --exact handed::tests::handed_child"
            );
            let mut child = Command::new("sh");
            child.arg("-c").arg(line).arg(std::env::current_exe().unwrap()).env(CHILD, expected);
            assert!(child.stdout(Stdio::null()).status().unwrap().success(), "{variables}");
        }
    }
}

//! Child processes: waiting with a time limit, resource usage, and signals through a pidfd.

use crate::{Errno, usage::Usage};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use std::{
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::ExitStatusExt,
    },
    process::{Child, ExitStatus},
    time::Duration,
};

/// Returns a pidfd, which identifies one process even if its pid is reused. `pidfd_open(2)`, Linux 5.3.
pub fn watch(child: &Child) -> Result<OwnedFd, Errno> {
    pidfd_open(Pid::from_child(child), PidfdFlags::empty())
}

/// Waits until the process ends, for at most `limit`, and returns `true` if it has. EINTR if a signal arrived first.
pub fn ended_within(process: &impl AsFd, limit: Option<Duration>) -> Result<bool, Errno> {
    // A limit that the kernel cannot represent counts as none.
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    let ready = poll(&mut [PollFd::new(process, PollFlags::IN)], limit.as_ref())?;
    Ok(ready > 0)
}

/// Sends a signal. ESRCH if the process has ended and was reaped.
pub fn signal(process: &impl AsFd, signal: Signal) -> Result<(), Errno> {
    pidfd_send_signal(process, signal)
}

/// The exit status of a child, and the resources used by the child and the children it waited for.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Its exit status.
    pub status: ExitStatus,
    /// The resources used.
    pub used: Usage,
    /// The largest resident memory of any one of these processes, in bytes. When a child starts, the kernel copies the
    /// value of its parent, which is this process. A smaller value of the child is therefore not visible.
    pub max_resident: u64,
}

/// Reaps a child that has ended, by `wait4(2)`; `None` if it is still running. The standard library must not wait for
/// the child afterwards, because that fails with ECHILD.
pub fn reap(child: &Child) -> Result<Option<Ended>, Errno> {
    let mut status = 0;
    let mut used = MaybeUninit::<libc::rusage>::zeroed();
    let pid = child.id().cast_signed();
    // SAFETY: the call writes an int and at most one rusage.
    let got = unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, used.as_mut_ptr()) };
    match got {
        0 => Ok(None),
        -1 => Err(crate::io::last_errno()),
        _ => {
            // SAFETY: zeroes are a valid rusage, and so is the result that the kernel wrote over them.
            let used = unsafe { used.assume_init() };
            Ok(Some(Ended {
                status: ExitStatus::from_raw(status),
                used: Usage::of(&used),
                max_resident: (used.ru_maxrss as u64).saturating_mul(1024),
            }))
        }
    }
}

/// Returns the largest resident memory that this process has had, in bytes: `VmHWM` of proc(5). `None` if it is not
/// available.
pub fn own_max_resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    #![allow(clippy::zombie_processes, reason = "`reap` is how they are waited for")]
    use super::*;
    use std::process::Command;

    #[test]
    fn a_child_is_waited_for_and_its_usage_reported() {
        let child = Command::new("sh").args(["-c", "exit 7"]).spawn().unwrap();
        let process = watch(&child).unwrap();
        assert_eq!(ended_within(&process, None), Ok(true));
        let ended = reap(&child).unwrap().unwrap();
        assert_eq!(ended.status.code(), Some(7));
        assert!(ended.used.minor_faults > 0 && ended.max_resident > 0, "{ended:?}");
        assert_eq!(reap(&child).unwrap_err(), Errno::CHILD);
        assert_eq!(signal(&process, Signal::TERM), Err(Errno::SRCH));
    }

    #[test]
    fn a_limit_passes_and_a_signal_ends_the_child() {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = watch(&child).unwrap();
        assert_eq!(ended_within(&process, Some(Duration::from_millis(20))), Ok(false));
        assert!(reap(&child).unwrap().is_none());
        signal(&process, Signal::KILL).unwrap();
        assert_eq!(ended_within(&process, Some(Duration::MAX)), Ok(true));
        assert_eq!(reap(&child).unwrap().unwrap().status.signal(), Some(9));
        assert!(own_max_resident().unwrap() > 0);
    }
}

//! Waits for a child process with a time limit, and ends it together with its descendants.

use std::{
    os::fd::OwnedFd,
    process::Child,
    time::{Duration, Instant},
};
use thalweg_core::Cancelled;
use thalweg_core::cadence::{GRACE, HANG};
use thalweg_sys::{
    Errno,
    process::{self, Ended},
};

use super::started;
use crate::schedule::SampleFailure;

/// Waits for a child to exit. Ends the child if it exceeds the time limit or if the caller asks to stop.
pub fn wait(
    mut child: Child,
    limit: Option<Duration>,
    stop: &dyn Fn() -> Result<(), Cancelled>,
) -> Result<Ended, SampleFailure> {
    let process = watch(&mut child)?;
    let began = Instant::now();
    loop {
        let left = limit.map(|limit| limit.saturating_sub(began.elapsed()));
        match process::ended_within(&process, left) {
            Ok(true) => return reaped(&child),
            Ok(false) => {
                end(&child, &process)?;
                let seconds = limit.unwrap_or_default().as_secs_f64();
                return Err(format!("still running after {seconds} s, so it was stopped").into());
            }
            Err(Errno::INTR) if stop().is_ok() => {}
            Err(Errno::INTR) => {
                end(&child, &process)?;
                return Err(SampleFailure::Cancelled);
            }
            Err(errno) => {
                end(&child, &process)?;
                return Err(format!("poll: {errno}").into());
            }
        }
    }
}

/// Opens a pidfd for a child. If that fails, kills the child, because it cannot be waited for with a time limit.
pub fn watch(child: &mut Child) -> Result<OwnedFd, String> {
    process::watch(child).map_err(|errno| {
        let _ = child.kill();
        let _ = child.wait();
        format!("pidfd_open: {errno} (it needs Linux 5.3)")
    })
}

/// Sends SIGTERM and after [`HANG`] SIGKILL, and returns how the child exited. Ends the child's descendants too, because
/// they would disturb later runs.
pub fn end(child: &Child, process: &OwnedFd) -> Result<Ended, String> {
    let rest = started::by(child);
    let ended = end_alone(child, process);
    started::end(rest, GRACE);
    ended
}

fn end_alone(child: &Child, process: &OwnedFd) -> Result<Ended, String> {
    use rustix::process::Signal;
    let began = Instant::now();
    for signal in [Signal::TERM, Signal::KILL] {
        // The process may have exited in the meantime.
        let _ = process::signal(process, signal);
        while began.elapsed() < HANG || signal == Signal::KILL {
            let left = (signal == Signal::TERM).then(|| HANG.saturating_sub(began.elapsed()));
            match process::ended_within(process, left) {
                Ok(true) => return reaped(child),
                Ok(false) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(format!("poll: {errno}")),
            }
        }
    }
    Err("the process did not end after SIGKILL".to_owned())
}

fn reaped<E: From<String>>(child: &Child) -> Result<Ended, E> {
    match process::reap(child) {
        Ok(Some(ended)) => Ok(ended),
        Ok(None) => Err("the kernel did not report the end of the process".to_owned().into()),
        Err(errno) => Err(format!("wait4: {errno}").into()),
    }
}

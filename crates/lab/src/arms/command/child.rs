//! Waiting for a child with a time limit, and ending it with all it has started.

use std::{
    os::fd::OwnedFd,
    process::Child,
    time::{Duration, Instant},
};
use thalweg_core::Cancelled;
use thalweg_sys::{
    Errno,
    process::{self, Ended},
};

use super::started;
use crate::measure::schedule::Failure;

/// How long a process that was asked to end may take before it is made to.
const GRACE: Duration = Duration::from_secs(1);

/// Waits for the end of a child; one that is over its limit, or in the way of a stop, is ended.
pub fn wait(
    mut child: Child,
    limit: Option<Duration>,
    stop: &dyn Fn() -> Result<(), Cancelled>,
) -> Result<Ended, Failure> {
    let process = watch(&mut child)?;
    let began = Instant::now();
    loop {
        let left = limit.map(|limit| limit.saturating_sub(began.elapsed()));
        match process::ended_within(&process, left) {
            Ok(true) => return reaped(&child),
            Ok(false) => {
                end(&child, &process)?;
                let seconds = limit.unwrap_or_default().as_secs_f64();
                return Err(format!("still running after {seconds} s, and ended").into());
            }
            Err(Errno::INTR) if stop().is_ok() => {}
            Err(Errno::INTR) => {
                end(&child, &process)?;
                return Err(Failure::Cancelled);
            }
            Err(errno) => {
                end(&child, &process)?;
                return Err(format!("poll: {errno}").into());
            }
        }
    }
}

/// A name for a child that stays its own; without one it cannot be waited for, and is ended.
pub fn watch(child: &mut Child) -> Result<OwnedFd, String> {
    process::watch(child).map_err(|errno| {
        let _ = child.kill();
        let _ = child.wait();
        format!("pidfd_open: {errno} (it needs Linux 5.3)")
    })
}

/// Asks a child to end, makes it after a while, and says how it ended. What it has started ends too:
/// else it would be in the way of the runs to come.
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
        // It may have ended by itself meanwhile.
        let _ = process::signal(process, signal);
        while began.elapsed() < GRACE || signal == Signal::KILL {
            let left = (signal == Signal::TERM).then(|| GRACE.saturating_sub(began.elapsed()));
            match process::ended_within(process, left) {
                Ok(true) => return reaped(child),
                Ok(false) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(format!("poll: {errno}")),
            }
        }
    }
    Err("it outlives SIGKILL".to_owned())
}

fn reaped<E: From<String>>(child: &Child) -> Result<Ended, E> {
    match process::reap(child) {
        Ok(Some(ended)) => Ok(ended),
        Ok(None) => Err("its end did not show".to_owned().into()),
        Err(errno) => Err(format!("wait4: {errno}").into()),
    }
}

//! Waits that Ctrl-C can end. They wait in slices without the interpreter lock, and check for signals between slices.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::mem;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use thalweg_channel::{Address, Admit, Error, Link};
use thalweg_core::cadence::{CANCEL_CHECK, RETRY_PAUSE};
use thalweg_sys::Errno;
use thalweg_sys::fork::ForkMark;

use crate::error::raised;

/// Converts a timeout in seconds to a deadline; `None` means no limit.
pub fn deadline(timeout: Option<f64>) -> PyResult<Option<Instant>> {
    let Some(seconds) = timeout else { return Ok(None) };
    if seconds.is_nan() || seconds < 0.0 {
        return Err(PyValueError::new_err(format!(
            "timeout={seconds}: must be 0 or more seconds, or None"
        )));
    }
    // A timeout beyond the range of the clock means no limit.
    let timeout = Duration::try_from_secs_f64(seconds).ok();
    Ok(timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
}

/// Repeats `step` until it returns a result or `deadline` passes. `step` must return [`Error::Timeout`] at the instant
/// that it gets as an argument, and must be repeatable.
pub fn patiently<T: Send>(
    py: Python<'_>,
    deadline: Option<Instant>,
    mut step: impl FnMut(Instant) -> Result<T, Error> + Send,
) -> PyResult<T> {
    loop {
        let slice = Instant::now() + CANCEL_CHECK;
        let until = deadline.map_or(slice, |deadline| deadline.min(slice));
        match py.detach(|| step(until)) {
            Ok(found) => return Ok(found),
            Err(Error::Timeout) if deadline.is_none_or(|deadline| Instant::now() < deadline) => {
                py.check_signals()?;
            }
            Err(error) => return Err(raised(py)(error)),
        }
    }
}

/// A handshake that runs in its own thread, until its time limit or until this value is dropped. A handshake cannot be
/// repeated. The thread continues between calls, so callers with short timeouts can wait for it in several calls.
pub struct PendingHandshake<T> {
    told: mpsc::Receiver<Result<T, Error>>,
    mark: ForkMark,
    /// The link's socket, until the handshake ends.
    link: Option<UnixStream>,
}

impl<T: Send + 'static> PendingHandshake<T> {
    pub fn begin(
        py: Python<'_>,
        link: Link,
        patience: Duration,
        meet: impl FnOnce(Link, Instant) -> Result<T, Error> + Send + 'static,
    ) -> PyResult<Self> {
        let until = Instant::now() + patience;
        // If no descriptor or thread is available, the caller gets the exception for failed system calls.
        let failed = |call, error: &std::io::Error| {
            let errno = Errno::from_io_error(error).unwrap_or(Errno::AGAIN);
            raised(py)(Error::System { call, errno })
        };
        let socket = link.as_fd().try_clone_to_owned();
        let socket = socket.map_err(|error| failed("fcntl(F_DUPFD_CLOEXEC)", &error))?;
        let socket = Some(socket.into());
        let (tell, told) = mpsc::channel();
        let thread = thread::Builder::new().name("thalweg-meet".to_owned());
        let begun = thread.spawn(move || {
            // `send` fails if the end was closed in the meantime. Then this statement drops the result.
            let _ = tell.send(meet(link, until));
        });
        begun.map_err(|error| failed("clone", &error))?;
        Ok(Self { told, mark: ForkMark::here(), link: socket })
    }

    /// Returns the result, or Timeout if the handshake has not ended by `deadline`. The handshake continues after
    /// Timeout.
    pub fn outcome(
        &mut self,
        py: Python<'_>,
        deadline: Option<Instant>,
    ) -> PyResult<Result<T, Error>> {
        let told = &mut self.told;
        // Moves a mutable borrow into the closure, because the receiver is `Send`, but not `Sync`.
        let met = patiently(py, deadline, move |until| {
            match told.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(met) => Ok(met),
                Err(mpsc::RecvTimeoutError::Timeout) => Err(Error::Timeout),
                Err(mpsc::RecvTimeoutError::Disconnected) => Ok(Err(Error::Timeout)),
            }
        });
        self.link.take_if(|_| met.is_ok());
        met
    }
}

impl<T> Drop for PendingHandshake<T> {
    fn drop(&mut self) {
        if !self.mark.is_here() {
            // The handshake belongs to the parent, and a shutdown would end it there. Dropping the receiver could block,
            // because the sending thread does not exist in the child.
            let (_, replaced) = mpsc::channel();
            mem::forget(mem::replace(&mut self.told, replaced));
            return;
        }
        if let Some(link) = &self.link {
            // Fails if the peer has gone, which needs no action.
            let _ = link.shutdown(Shutdown::Both);
        }
    }
}

/// Pauses before the next attempt to connect, at most until `deadline`.
pub fn rest(py: Python<'_>, deadline: Option<Instant>) -> PyResult<()> {
    let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
    py.detach(|| thread::sleep(left.map_or(RETRY_PAUSE, |left| left.min(RETRY_PAUSE))));
    py.check_signals()
}

/// Connects to the process that listens at this address. Retries until `until` while no process listens there.
pub fn joined(address: &Address, until: Instant) -> Result<Link, Error> {
    loop {
        match Link::connect_with(address, Admit::SameUser, Some(until)) {
            Err(error) if error.is_absent() => {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(Error::Timeout);
                }
                thread::sleep(left.min(RETRY_PAUSE));
            }
            met => return met,
        }
    }
}

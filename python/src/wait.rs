//! Waits that Ctrl-C ends: in slices, without the interpreter's lock, and signals are looked at between them.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use thalweg_channel::{Address, Admit, Error, Link};
use thalweg_sys::Errno;

use crate::error::raised;

/// How late a signal may be seen.
pub const SLICE: Duration = Duration::from_millis(50);

/// Between two looks whether somebody is there by now.
const AGAIN: Duration = Duration::from_millis(10);

/// When to give up, of seconds as Python counts them; `None` is never.
pub fn deadline(timeout: Option<f64>) -> PyResult<Option<Instant>> {
    let Some(seconds) = timeout else { return Ok(None) };
    if seconds.is_nan() || seconds < 0.0 {
        return Err(PyValueError::new_err(format!(
            "timeout={seconds}: seconds, 0 or more, or None"
        )));
    }
    // What no clock can count is never.
    let timeout = Duration::try_from_secs_f64(seconds).ok();
    Ok(timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
}

/// What `step` comes to, which gives up at the instant that it is told and can be made again.
pub fn patiently<T: Send>(
    py: Python<'_>,
    deadline: Option<Instant>,
    mut step: impl FnMut(Instant) -> Result<T, Error> + Send,
) -> PyResult<T> {
    loop {
        let slice = Instant::now() + SLICE;
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

/// A handshake, which cannot be made again and so has a thread of its own: it ends when its patience does, or when this is
/// dropped. A caller with less patience waits again later, so one who asks often and briefly meets the other too.
pub struct Meeting<T> {
    told: mpsc::Receiver<Result<T, Error>>,
    /// The link's socket, until the handshake is over.
    link: Option<UnixStream>,
}

impl<T: Send + 'static> Meeting<T> {
    pub fn begin(
        py: Python<'_>,
        link: Link,
        patience: Duration,
        meet: impl FnOnce(Link, Instant) -> Result<T, Error> + Send + 'static,
    ) -> PyResult<Self> {
        let until = Instant::now() + patience;
        // A lack of descriptors, or of threads, has the class of all failed calls.
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
            // Nobody listens any more if the end was closed meanwhile: then what was made is dropped here.
            let _ = tell.send(meet(link, until));
        });
        begun.map_err(|error| failed("clone", &error))?;
        Ok(Self { told, link: socket })
    }

    /// What came of it; Timeout where it has not ended before `deadline`: it goes on.
    pub fn outcome(
        &mut self,
        py: Python<'_>,
        deadline: Option<Instant>,
    ) -> PyResult<Result<T, Error>> {
        let told = &mut self.told;
        // With all of it, for a receiver may move to another thread, not be seen by two.
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

impl<T> Drop for Meeting<T> {
    fn drop(&mut self) {
        if let Some(link) = &self.link {
            // It fails where the other side has gone.
            let _ = link.shutdown(Shutdown::Both);
        }
    }
}

/// Before another look whether somebody is there, unless there is no time for it.
pub fn rest(py: Python<'_>, deadline: Option<Instant>) -> PyResult<()> {
    let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
    py.detach(|| thread::sleep(left.map_or(AGAIN, |left| left.min(AGAIN))));
    py.check_signals()
}

/// A link to who listens under this name, if that is there before `until`.
pub fn joined(address: &Address, until: Instant) -> Result<Link, Error> {
    loop {
        match Link::connect_with(address, Admit::SameUser, Some(until)) {
            Err(error) if error.is_absent() => {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(Error::Timeout);
                }
                thread::sleep(left.min(AGAIN));
            }
            met => return met,
        }
    }
}

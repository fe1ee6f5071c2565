//! Converts errors of the libraries into the exceptions of `thalweg/_errors.py`.

use pyo3::PyErrArguments;
use pyo3::exceptions::{PyBaseException, PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use thalweg_channel::Error;
use thalweg_channel::layout::{FRAME_HEADER, MOST_CAPACITY};

/// Contents of an exception.
pub struct PyFailure {
    pub kind: &'static str,
    pub errno: Option<i32>,
    pub message: String,
    pub moved: u64,
    pub mechanism: Option<String>,
}

impl PyFailure {
    pub fn new(kind: &'static str, message: impl Into<String>) -> Self {
        Self { kind, errno: None, message: message.into(), moved: 0, mechanism: None }
    }

    /// Returns the exception. The Python object is created only when the exception leaves the extension module, because
    /// its creation runs Python code. A signal handler may run then, and may use the end that the caller has locked.
    pub fn raised(self, _: Python<'_>) -> PyErr {
        PyBaseException::new_err(self)
    }
}

impl PyErrArguments for PyFailure {
    fn arguments(self, py: Python<'_>) -> Py<PyAny> {
        let made = || {
            let module = py.import("thalweg._errors")?;
            let said = (self.kind, self.errno, self.message, self.moved, self.mechanism);
            module.getattr("made")?.call1(said)
        };
        // `made` runs Python code, so a signal handler may raise an exception. That exception then replaces this one.
        made().map_or_else(|error: PyErr| error.into_value(py).into_any(), Bound::unbind)
    }
}

impl From<Error> for PyFailure {
    fn from(error: Error) -> Self {
        let (kind, errno, moved) = match &error {
            Error::PeerDied { delivered, .. } => ("PeerDied", None, *delivered),
            Error::Closed { delivered } => ("Closed", None, *delivered),
            Error::Timeout => ("Timeout", None, 0),
            Error::TooLarge { .. } => ("TooLarge", None, 0),
            Error::Corrupt { .. } => ("Corrupt", None, 0),
            Error::NotPermitted { .. } | Error::Forked { .. } => ("NotPermitted", None, 0),
            Error::System { errno, .. } | Error::Meeting { errno, .. } => {
                ("Error", Some(errno.raw_os_error()), 0)
            }
            _ => ("Error", None, 0),
        };
        let message = match error {
            // The Rust error suggests a Rust function, so this message suggests what to do in Python.
            Error::TooLarge { len, most, .. } => {
                let way = if len.saturating_add(FRAME_HEADER as u64) <= MOST_CAPACITY {
                    "use a larger `capacity`"
                } else {
                    "no ring has room for it: send several smaller messages"
                };
                format!("{len} bytes are too large: at most {most}; {way}")
            }
            error => error.to_string(),
        };
        Self { errno, moved, ..Self::new(kind, message) }
    }
}

/// Returns a converter for `map_err`.
pub fn raised(py: Python<'_>) -> impl Fn(Error) -> PyErr {
    move |error| PyFailure::from(error).raised(py)
}

/// Returns the exception that Python raises for closed files.
pub fn closed() -> PyErr {
    PyValueError::new_err("this end of the channel is closed")
}

pub fn is_timeout(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyTimeoutError>(py)
}

//! Sockets that Python has open.
#![allow(unsafe_code)]

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::os::fd::{BorrowedFd, OwnedFd};

/// A descriptor of our own for the socket of an object with a `fileno`.
pub fn own_descriptor(socket: &Bound<'_, PyAny>) -> PyResult<OwnedFd> {
    let number: i32 = socket.call_method0("fileno")?.extract()?;
    if number < 0 {
        return Err(PyValueError::new_err("a closed socket"));
    }
    // SAFETY: not -1, and it lives for the next line only, which copies what is open there. Whoever gave us an object that
    // has closed it gets EBADF, or a descriptor of something else, which is checked before it is used.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    Ok(borrowed.try_clone_to_owned()?)
}

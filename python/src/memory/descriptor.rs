//! Descriptors of Python's sockets.
#![allow(unsafe_code)]

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Duplicates the descriptor of an object with a `fileno` method.
pub fn own_descriptor(socket: &Bound<'_, PyAny>) -> PyResult<OwnedFd> {
    let number: i32 = socket.call_method0("fileno")?.extract()?;
    if number < 0 {
        return Err(PyValueError::new_err("the socket is closed"));
    }
    // SAFETY: the number is not -1, and the borrow ends with the next line, which duplicates the descriptor. If the
    // descriptor is not open any more, duplicating fails with EBADF. If its number was reused, the call duplicates
    // another open file, which is checked before use.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    Ok(borrowed.try_clone_to_owned()?)
}

//! An end of a channel serves one thread at a time, of the process that made it.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::{Mutex, MutexGuard, TryLockError};
use thalweg_channel::Error;
use thalweg_sys::fork::Mark;

use crate::error::raised;

/// What a handle of Python is over.
pub struct Alone<T> {
    inside: Mutex<T>,
    mark: Mark,
}

impl<T> Alone<T> {
    pub fn new(inside: T) -> Self {
        Self { inside: Mutex::new(inside), mark: Mark::here() }
    }

    /// `work` with the inside, for a caller who may use it.
    pub fn with<R>(&self, py: Python<'_>, work: impl FnOnce(&mut T) -> PyResult<R>) -> PyResult<R> {
        let done = match self.here()? {
            Some(mut inside) => work(&mut inside),
            None => Err(raised(py)(Error::Forked { owner: self.mark.process() })),
        };
        // Makes the exception, with the lock released.
        done.inspect_err(|error| {
            error.value(py);
        })
    }

    /// The inside; `None` in a forked child, whose parent it serves. Who comes while it is in use, also a signal handler of
    /// the thread that is in it, gets an exception and does not wait.
    pub fn here(&self) -> PyResult<Option<MutexGuard<'_, T>>> {
        if !self.mark.is_here() {
            return Ok(None);
        }
        match self.inside.try_lock() {
            Ok(guard) => Ok(Some(guard)),
            // Nothing in it can be half changed by a panic: every step of a ring is whole or not there.
            Err(TryLockError::Poisoned(poisoned)) => Ok(Some(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => Err(PyRuntimeError::new_err(
                "this end is in use by another thread; give each thread an end of its own, or a lock",
            )),
        }
    }
}

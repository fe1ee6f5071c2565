//! Restricts an end of a channel to one thread at a time, in the process that created it.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::{Mutex, MutexGuard, TryLockError};
use thalweg_channel::Error;
use thalweg_sys::fork::ForkMark;

use crate::error::raised;

/// The state behind a Python handle.
pub struct OneThread<T> {
    inside: Mutex<T>,
    mark: ForkMark,
}

impl<T> OneThread<T> {
    pub fn new(inside: T) -> Self {
        Self { inside: Mutex::new(inside), mark: ForkMark::here() }
    }

    /// Runs `work` with exclusive access to the state. Returns an exception if the state is in use, or in a forked
    /// child.
    pub fn with<R>(&self, py: Python<'_>, work: impl FnOnce(&mut T) -> PyResult<R>) -> PyResult<R> {
        let done = match self.here()? {
            Some(mut inside) => work(&mut inside),
            None => Err(raised(py)(Error::Forked { owner: self.mark.process() })),
        };
        // Creates the exception object while the lock is released.
        done.inspect_err(|error| {
            error.value(py);
        })
    }

    /// Takes a part out of the state, releases the interpreter lock, and drops the part. Does nothing in a
    /// forked child.
    pub fn close<D: Send>(&self, py: Python<'_>, part: impl FnOnce(&mut T) -> D) -> PyResult<()> {
        let Some(mut inside) = self.here()? else { return Ok(()) };
        let part = part(&mut inside);
        drop(inside);
        py.detach(|| drop(part));
        Ok(())
    }

    /// Locks the state; `None` in a forked child, because the end belongs to the parent. If the state is in use,
    /// returns an exception instead of waiting, because a signal handler that has interrupted a call on this end
    /// would deadlock.
    fn here(&self) -> PyResult<Option<MutexGuard<'_, T>>> {
        if !self.mark.is_here() {
            return Ok(None);
        }
        match self.inside.try_lock() {
            Ok(guard) => Ok(Some(guard)),
            // A panic cannot leave a ring in an inconsistent state, because every step of a ring is atomic.
            Err(TryLockError::Poisoned(poisoned)) => Ok(Some(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => Err(PyRuntimeError::new_err(
                "this end of the channel is in use by another thread; give each thread its own end, or use a lock",
            )),
        }
    }
}

//! Memory in a ring that Python writes in place.
#![allow(unsafe_code)]

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use thalweg_channel::{Error, Producer};

use super::exports::{Start, expose};
use crate::header::Layout;

/// A ring's writing end. Loans keep it alive after it was closed.
#[derive(Clone)]
pub struct Ring(Arc<Mutex<Producer>>);

impl Ring {
    pub fn new(producer: Producer) -> Self {
        Self(Arc::new(Mutex::new(producer)))
    }

    /// Locks the producer. Only its `Offer` calls this, which one thread uses at a time.
    pub fn producer(&self) -> MutexGuard<'_, Producer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Room for a message, with its header written. Whoever publishes, or lends the same room again, looks first whether
/// [`Loan::is_seen`].
#[pyclass(frozen, module = "thalweg._native")]
pub struct Loan {
    layout: Layout,
    start: Start,
    exports: AtomicUsize,
    /// The memory is its.
    _ring: Ring,
}

impl Loan {
    /// Returns the room that `Producer::loan_until` has made available.
    pub fn of(ring: &Ring, layout: Layout, len: usize) -> Result<Self, Error> {
        let mut producer = ring.producer();
        let mut room = producer.try_loan(len)?.ok_or_else(Self::lost)?;
        layout.write(&mut room);
        // The address stays valid until the next message is committed, because nothing else sends on this ring.
        let start = Start(NonNull::from(&mut room[layout.offset()..]).cast());
        Ok(Self { layout, start, exports: AtomicUsize::new(0), _ring: ring.clone() })
    }

    /// Returns the error for room that the receiver had released and has claimed again.
    pub fn lost() -> Error {
        Error::corrupt("the room that was lent is gone: the receiver has moved its position back")
    }

    /// Returns `true` if any view of the room still exists.
    pub fn is_seen(&self) -> bool {
        self.exports.load(Ordering::Acquire) > 0
    }
}

#[pymethods]
impl Loan {
    /// As of a message.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.layout.shape)
    }

    /// # Safety
    /// Called by the interpreter, with room for a view.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let loan = slf.get();
        // SAFETY: guaranteed by the interpreter. The ring keeps the memory while the object lives, and the view holds
        // a reference to the object. Nothing else writes the memory before it is published, and publishing requires
        // that no view exists.
        unsafe {
            expose(slf.clone().into_any(), view, flags, (&loan.layout, (loan.start.0, true)))
        }?;
        loan.exports.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// # Safety
    /// Called by the interpreter, for a view that was given.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.exports.fetch_sub(1, Ordering::AcqRel);
    }
}

//! Memory in a ring that Python writes in place.
#![allow(unsafe_code)]

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use thalweg_channel::{DetachedLoan, Error, Producer};

use super::exports::{Exported, Start, expose};
use crate::header::Layout;

/// A ring's writing end. Loans keep it alive after it was closed.
#[derive(Clone)]
pub struct SharedProducer(Arc<Mutex<Producer>>);

impl SharedProducer {
    pub fn new(producer: Producer) -> Self {
        Self(Arc::new(Mutex::new(producer)))
    }

    /// Locks the producer. Never waits, because only its [`PyProducer`](crate::producer::PyProducer) calls this method,
    /// and only one thread at a time can use a `PyProducer`.
    pub fn producer(&self) -> MutexGuard<'_, Producer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Room for a message, with its header written. The caller may commit or reuse the room only if [`PyLoan::is_seen`] is
/// `false`.
#[pyclass(frozen, name = "Loan", module = "thalweg._native")]
pub struct PyLoan {
    layout: Layout,
    start: Start,
    exports: AtomicUsize,
    /// Keeps the ring alive, because the room is in the ring.
    _ring: SharedProducer,
}

impl PyLoan {
    /// Writes the header to reserved room. Returns the object for Python, and the loan to commit.
    pub fn of(
        ring: &SharedProducer,
        layout: Layout,
        detached: DetachedLoan,
    ) -> Result<(Self, DetachedLoan), Error> {
        let mut producer = ring.producer();
        let mut room = producer.attach(detached)?;
        layout.write(&mut room);
        // The address stays valid until the next message is committed, because nothing else sends on this ring.
        let start = Start(NonNull::from(&mut room[layout.offset()..]).cast());
        let detached = room.detach();
        let loan = Self { layout, start, exports: AtomicUsize::new(0), _ring: ring.clone() };
        Ok((loan, detached))
    }

    /// Returns `true` if any view of the room still exists.
    pub fn is_seen(&self) -> bool {
        self.exports.load(Ordering::Acquire) > 0
    }
}

#[pymethods]
impl PyLoan {
    /// The lengths of the dimensions.
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
        let exported = Exported { layout: &loan.layout, start: loan.start.0, writable: true };
        // SAFETY: guaranteed by the interpreter. The ring keeps the memory while the object lives, and the view holds
        // a reference to the object. Nothing else writes the memory before it is published, and publishing requires
        // that no view exists.
        unsafe { expose(slf.clone().into_any(), view, flags, exported) }?;
        loan.exports.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// # Safety
    /// Called by the interpreter, for a view that `__getbuffer__` has filled.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.exports.fetch_sub(1, Ordering::AcqRel);
    }
}

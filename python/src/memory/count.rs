//! Reference counts of objects.
#![allow(unsafe_code)]

use pyo3::ffi;
use pyo3::prelude::*;

/// Returns the reference count of an object, as seen by a method that receives it as an argument.
#[pyfunction]
#[pyo3(signature = (object, /))]
pub fn references(object: &Bound<'_, PyAny>) -> isize {
    // SAFETY: the object is alive, and the interpreter is attached.
    unsafe { ffi::Py_REFCNT(object.as_ptr()) }
}

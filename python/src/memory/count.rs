//! Reference counts of objects.
#![allow(unsafe_code)]

use pyo3::ffi;
use pyo3::prelude::*;

/// How often an object is held, as a method sees it that gets it as its argument.
#[pyfunction]
#[pyo3(signature = (object, /))]
pub fn references(object: &Bound<'_, PyAny>) -> isize {
    // SAFETY: the object is alive, and the interpreter is attached.
    unsafe { ffi::Py_REFCNT(object.as_ptr()) }
}

//! Exports memory of this module through the buffer protocol, as elements in C order.
#![allow(unsafe_code)]

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;
use std::ptr::{NonNull, null_mut};

use crate::header::{Encoding, Layout};

/// Address of elements. The object that contains this address also keeps their memory alive.
pub struct Start(pub NonNull<u8>);

// SAFETY: this is an address only. Python reads and writes the memory, under the rules of its buffer protocol.
unsafe impl Send for Start {}
// SAFETY: as above.
unsafe impl Sync for Start {}

/// Elements in memory that their owner keeps alive.
pub struct Exported<'a> {
    pub layout: &'a Layout,
    pub start: NonNull<u8>,
    pub writable: bool,
}

/// Fills a view of elements in C order.
///
/// # Safety
/// `view` must be null or point to memory for a view. `layout` and the elements must belong to `owner` and stay in
/// place while `owner` lives.
pub unsafe fn expose(
    owner: Bound<'_, PyAny>,
    view: *mut ffi::Py_buffer,
    flags: c_int,
    Exported { layout, start, writable }: Exported<'_>,
) -> PyResult<()> {
    // SAFETY: guaranteed by the caller.
    let Some(view) = (unsafe { view.as_mut() }) else {
        return Err(PyBufferError::new_err("the view is NULL"));
    };
    view.obj = null_mut();
    let asks = |flag| flags & flag == flag;
    if asks(ffi::PyBUF_WRITABLE) && !writable {
        return Err(PyBufferError::new_err(
            "a received message is read-only; take(..., copy=True) returns writable copies",
        ));
    }
    let is_flat =
        layout.shape.iter().filter(|length| **length != 1).count() <= 1 || layout.bytes() == 0;
    if asks(ffi::PyBUF_F_CONTIGUOUS) && !is_flat {
        return Err(PyBufferError::new_err("the elements are in C order, not in Fortran order"));
    }
    let format = match layout.encoding {
        Encoding::Buffer => layout.format.as_ptr().cast_mut(),
        Encoding::Time => layout.of_buffer().as_ptr().cast_mut().cast(),
    };
    let has_shape = asks(ffi::PyBUF_ND) && !layout.shape.is_empty();
    let has_strides = asks(ffi::PyBUF_STRIDES) && !layout.strides.is_empty();
    view.buf = start.as_ptr().cast();
    view.len = layout.bytes() as isize;
    view.itemsize = layout.item as isize;
    view.readonly = c_int::from(!writable);
    view.ndim = if asks(ffi::PyBUF_ND) { layout.shape.len() as c_int } else { 1 };
    view.format = if asks(ffi::PyBUF_FORMAT) { format } else { null_mut() };
    view.shape = if has_shape { layout.shape.as_ptr().cast_mut() } else { null_mut() };
    view.strides = if has_strides { layout.strides.as_ptr().cast_mut() } else { null_mut() };
    view.suboffsets = null_mut();
    view.internal = null_mut();
    view.obj = owner.into_ptr();
    Ok(())
}

//! Buffers of Python objects: their layout, and copies from and to them with any strides.
#![allow(unsafe_code)]

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_int};
use std::mem::MaybeUninit;
use std::ptr::copy_nonoverlapping;

use crate::header::{Encoding, Layout};

/// A buffer of a Python object. Until this value is dropped, the object neither frees nor moves the memory.
pub struct HeldBuffer {
    view: Box<ffi::Py_buffer>,
    /// Lengths of the dimensions; empty for a single element.
    shape: Vec<isize>,
    strides: Vec<isize>,
}

// SAFETY: the exporter keeps the memory of a buffer in place, for any thread, until the buffer is released. `drop`
// releases it with the interpreter attached. Nothing else accesses the object.
unsafe impl Send for HeldBuffer {}
// SAFETY: as above; a shared reference only reads the view.
unsafe impl Sync for HeldBuffer {}

impl HeldBuffer {
    /// Acquires the buffer of an object, with any strides.
    pub fn get(object: &Bound<'_, PyAny>, writable: bool) -> PyResult<Self> {
        let flags = if writable { ffi::PyBUF_FULL } else { ffi::PyBUF_FULL_RO };
        let mut view = Box::<ffi::Py_buffer>::new_uninit();
        if fill(object, &mut view, flags) != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        // SAFETY: `fill` returned 0, so the view is initialized.
        let view = unsafe { view.assume_init() };
        let mut given = Self { view, shape: Vec::new(), strides: Vec::new() };
        let dimensions = usize::try_from(given.view.ndim).unwrap_or(0);
        // After this, an early return drops `given`, which releases the buffer.
        if !given.view.suboffsets.is_null() {
            return Err(PyBufferError::new_err(
                "a buffer with pointers to its elements (suboffsets) cannot be sent",
            ));
        }
        if dimensions > 0 {
            if given.view.shape.is_null() {
                return Err(PyBufferError::new_err("the buffer has no shape"));
            }
            // SAFETY: the pointer is not null, so it points to `ndim` values.
            given.shape =
                unsafe { std::slice::from_raw_parts(given.view.shape, dimensions) }.to_vec();
            given.strides = if given.view.strides.is_null() {
                // Without strides the elements are in C order, as ctypes exports them (PEP 3118).
                let mut strides = vec![given.view.itemsize; dimensions];
                for at in (1..dimensions).rev() {
                    strides[at - 1] = strides[at].saturating_mul(given.shape[at]);
                }
                strides
            } else {
                // SAFETY: the pointer is not null, so it points to `ndim` values.
                unsafe { std::slice::from_raw_parts(given.view.strides, dimensions) }.to_vec()
            };
        }
        Ok(given)
    }

    /// Returns the layout in C order; `None` if its size would overflow.
    pub fn layout(&self) -> Option<Layout> {
        let format = if self.view.format.is_null() {
            c"B".to_owned()
        } else {
            // SAFETY: the pointer is not null, so it points to a C string that lives as long as the buffer.
            unsafe { CStr::from_ptr(self.view.format) }.to_owned()
        };
        let item = usize::try_from(self.view.itemsize).ok()?;
        let layout = Layout::new(Encoding::Buffer, format, item, self.shape.clone())?;
        Some(Layout { readonly: self.view.readonly != 0, ..layout })
    }

    /// Returns the size of all elements in bytes.
    pub fn bytes(&self) -> usize {
        usize::try_from(self.view.len).unwrap_or(0)
    }

    /// Copies all elements to `to` in C order; `to` must have exactly their size.
    pub fn copy_to(&self, to: &mut [u8]) {
        let mut at = to.as_mut_ptr();
        let end = to.as_ptr_range().end;
        self.walk(&mut |from, run| {
            assert!(at.addr() + run <= end.addr(), "a buffer with more elements than it says");
            // SAFETY: `from` points to `run` bytes of a held buffer. The assertion checks `to`, which is our own
            // memory.
            unsafe { copy(from, at, run) };
            at = at.wrapping_add(run);
        });
    }

    /// Copies elements in C order into the buffer, which must be writable; `from` must have exactly their size.
    pub fn copy_from(&self, from: &[u8]) {
        assert!(self.view.readonly == 0, "a read-only buffer is not written");
        let mut at = from.as_ptr();
        let end = from.as_ptr_range().end;
        self.walk(&mut |to, run| {
            assert!(at.addr() + run <= end.addr(), "a buffer with more elements than it says");
            // SAFETY: `to` points to `run` bytes of a writable, held buffer. The assertion checks `from`.
            unsafe { copy(at, to, run) };
            at = at.wrapping_add(run);
        });
    }

    /// Returns `true` if the elements are contiguous, in C order.
    pub fn is_flat(&self) -> bool {
        self.shape.contains(&0) || self.together().1 == 0
    }

    /// Copies the bytes of the elements from offset `at` on; the buffer must be flat.
    pub fn copy_part_to(&self, at: usize, to: &mut [u8]) {
        let from = self.part(at, to.len());
        // SAFETY: `part` has checked that the range is inside the held buffer; `to` is private memory.
        unsafe { copy(from, to.as_mut_ptr(), to.len()) };
    }

    /// Copies bytes into the buffer from offset `at` on; it must be flat and writable.
    pub fn copy_part_from(&self, at: usize, from: &[u8]) {
        assert!(self.view.readonly == 0, "a read-only buffer is not written");
        let to = self.part(at, from.len());
        // SAFETY: `part` has checked that the range is inside the writable, held buffer.
        unsafe { copy(from.as_ptr(), to, from.len()) };
    }

    /// Returns the address of byte `at`, and checks that `len` bytes follow.
    fn part(&self, at: usize, len: usize) -> *mut u8 {
        let end = at.checked_add(len).filter(|end| *end <= self.bytes());
        assert!(self.is_flat() && end.is_some(), "bytes outside of a flat buffer");
        self.view.buf.cast::<u8>().wrapping_add(at)
    }

    /// Returns the length in bytes of a contiguous run, and the number of dimensions outside of it.
    fn together(&self) -> (isize, usize) {
        let mut run = self.view.itemsize;
        let mut outer = self.shape.len();
        // Joins adjacent dimensions without gaps into one run.
        while outer > 0 && (self.strides[outer - 1] == run || self.shape[outer - 1] == 1) {
            run *= self.shape[outer - 1];
            outer -= 1;
        }
        (run, outer)
    }

    /// Calls `each` for every contiguous run, in C order.
    fn walk(&self, each: &mut impl FnMut(*mut u8, usize)) {
        if self.shape.contains(&0) {
            return;
        }
        let (run, outer) = self.together();
        let (shape, strides) = (&self.shape[..outer], &self.strides[..outer]);
        walk(self.view.buf.cast(), shape, strides, &mut |at| each(at, run as usize));
    }
}

fn walk(base: *mut u8, shape: &[isize], strides: &[isize], each: &mut impl FnMut(*mut u8)) {
    let ([length, shape @ ..], [stride, strides @ ..]) = (shape, strides) else {
        return each(base);
    };
    for index in 0..*length {
        walk(base.wrapping_offset(index * stride), shape, strides, each);
    }
}

/// # Safety
/// The requirements of `copy_nonoverlapping` apply.
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, run: usize) {
    // Copies an element of a usual size with one load and one store instead of a call.
    match run {
        // SAFETY: guaranteed by the caller; byte arrays have no alignment.
        4 => unsafe { copy_nonoverlapping(from.cast::<[u8; 4]>(), to.cast(), 1) },
        // SAFETY: as above.
        8 => unsafe { copy_nonoverlapping(from.cast::<[u8; 8]>(), to.cast(), 1) },
        // SAFETY: guaranteed by the caller.
        _ => unsafe { copy_nonoverlapping(from, to, run) },
    }
}

fn fill(object: &Bound<'_, PyAny>, view: &mut MaybeUninit<ffi::Py_buffer>, flags: c_int) -> c_int {
    // SAFETY: the object is alive, and the view has memory that does not move, because it is in a box.
    unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), view.as_mut_ptr(), flags) }
}

impl Drop for HeldBuffer {
    fn drop(&mut self) {
        Python::attach(|_| {
            // SAFETY: PyObject_GetBuffer filled the view, it is released only here, and the interpreter is attached.
            unsafe { ffi::PyBuffer_Release(&raw mut *self.view) };
        });
    }
}

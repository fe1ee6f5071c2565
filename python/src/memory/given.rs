//! Buffers that Python lends us: what they are made of, and copies from and to them, of any strides.
#![allow(unsafe_code)]

use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_int};
use std::mem::MaybeUninit;
use std::ptr::copy_nonoverlapping;

use crate::header::{Encoding, Layout};

/// A buffer, held until dropped: its owner neither frees nor moves it meanwhile.
pub struct Given {
    view: Box<ffi::Py_buffer>,
    /// Of its dimensions; empty for a single element.
    shape: Vec<isize>,
    strides: Vec<isize>,
}

// SAFETY: whoever lends a buffer keeps its memory in place for whatever thread until it is released, for which the
// interpreter is attached. The object is not touched otherwise.
unsafe impl Send for Given {}
// SAFETY: as above; a shared reference only reads the description.
unsafe impl Sync for Given {}

impl Given {
    /// The buffer of an object, of any strides.
    pub fn get(object: &Bound<'_, PyAny>, writable: bool) -> PyResult<Self> {
        let flags = if writable { ffi::PyBUF_FULL } else { ffi::PyBUF_FULL_RO };
        let mut view = Box::<ffi::Py_buffer>::new_uninit();
        if fill(object, &mut view, flags) != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        // SAFETY: it was filled, as the answer says.
        let view = unsafe { view.assume_init() };
        let mut given = Self { view, shape: Vec::new(), strides: Vec::new() };
        let dimensions = usize::try_from(given.view.ndim).unwrap_or(0);
        // From here on an early return releases it.
        if !given.view.suboffsets.is_null() {
            return Err(PyTypeError::new_err("a buffer of pointers (suboffsets) cannot be sent"));
        }
        if dimensions > 0 {
            if given.view.shape.is_null() {
                return Err(PyBufferError::new_err("a buffer without shape"));
            }
            // SAFETY: not null, and then of so many dimensions.
            given.shape =
                unsafe { std::slice::from_raw_parts(given.view.shape, dimensions) }.to_vec();
            given.strides = if given.view.strides.is_null() {
                // In C order, as ctypes gives it (PEP 3118).
                let mut strides = vec![given.view.itemsize; dimensions];
                for at in (1..dimensions).rev() {
                    strides[at - 1] = strides[at].saturating_mul(given.shape[at]);
                }
                strides
            } else {
                // SAFETY: not null, and then of so many dimensions.
                unsafe { std::slice::from_raw_parts(given.view.strides, dimensions) }.to_vec()
            };
        }
        Ok(given)
    }

    /// What it is made of, in C order. `None` if so many bytes cannot be.
    pub fn layout(&self) -> Option<Layout> {
        let format = if self.view.format.is_null() {
            c"B".to_owned()
        } else {
            // SAFETY: not null, and then a string that lives as long as the buffer.
            unsafe { CStr::from_ptr(self.view.format) }.to_owned()
        };
        let item = usize::try_from(self.view.itemsize).ok()?;
        let layout = Layout::new(Encoding::Buffer, format, item, self.shape.clone())?;
        Some(Layout { readonly: self.view.readonly != 0, ..layout })
    }

    /// Bytes of all its elements.
    pub fn bytes(&self) -> usize {
        usize::try_from(self.view.len).unwrap_or(0)
    }

    /// Copies all elements out, in C order; `to` has exactly their bytes.
    pub fn copy_to(&self, to: &mut [u8]) {
        let mut at = to.as_mut_ptr();
        let end = to.as_ptr_range().end;
        self.walk(&mut |from, run| {
            assert!(at.addr() + run <= end.addr(), "a buffer with more elements than it says");
            // SAFETY: `run` bytes of a buffer that is held; asserted for `to`, which is our own memory.
            unsafe { copy(from, at, run) };
            at = at.wrapping_add(run);
        });
    }

    /// Copies elements in C order into it, which must be writable; `from` has exactly their bytes.
    pub fn copy_from(&self, from: &[u8]) {
        assert!(self.view.readonly == 0, "a read-only buffer is not written");
        let mut at = from.as_ptr();
        let end = from.as_ptr_range().end;
        self.walk(&mut |to, run| {
            assert!(at.addr() + run <= end.addr(), "a buffer with more elements than it says");
            // SAFETY: `run` bytes of a writable buffer that is held; asserted for `from`.
            unsafe { copy(at, to, run) };
            at = at.wrapping_add(run);
        });
    }

    /// Whether its elements lie together, in C order.
    pub fn is_flat(&self) -> bool {
        self.shape.contains(&0) || self.together().1 == 0
    }

    /// Copies the bytes of its elements from `at` on out of it, which is flat.
    pub fn copy_part_to(&self, at: usize, to: &mut [u8]) {
        let from = self.part(at, to.len());
        // SAFETY: so many bytes of a buffer that is held, as `part` has checked; `to` is our own memory.
        unsafe { copy(from, to.as_mut_ptr(), to.len()) };
    }

    /// Copies bytes into it, which is flat and writable, from its byte `at` on.
    pub fn copy_part_from(&self, at: usize, from: &[u8]) {
        assert!(self.view.readonly == 0, "a read-only buffer is not written");
        let to = self.part(at, from.len());
        // SAFETY: so many bytes of a writable buffer that is held, as `part` has checked.
        unsafe { copy(from.as_ptr(), to, from.len()) };
    }

    /// Where its byte `at` is, with `len` bytes from there on.
    fn part(&self, at: usize, len: usize) -> *mut u8 {
        let end = at.checked_add(len).filter(|end| *end <= self.bytes());
        assert!(self.is_flat() && end.is_some(), "bytes outside of a flat buffer");
        self.view.buf.cast::<u8>().wrapping_add(at)
    }

    /// Bytes that lie together, and how many dimensions there are of such runs.
    fn together(&self) -> (isize, usize) {
        let mut run = self.view.itemsize;
        let mut outer = self.shape.len();
        // Dimensions that lie together are one run.
        while outer > 0 && (self.strides[outer - 1] == run || self.shape[outer - 1] == 1) {
            run *= self.shape[outer - 1];
            outer -= 1;
        }
        (run, outer)
    }

    /// Every run of bytes that lie together, in C order.
    fn walk(&self, each: &mut impl FnMut(*mut u8, usize)) {
        if self.shape.contains(&0) {
            return;
        }
        let (run, outer) = self.together();
        let (shape, strides) = (&self.shape[..outer], &self.strides[..outer]);
        walk(self.view.buf.cast(), (shape, strides), &mut |at| each(at, run as usize));
    }
}

fn walk(base: *mut u8, (shape, strides): (&[isize], &[isize]), each: &mut impl FnMut(*mut u8)) {
    let ([length, shape @ ..], [stride, strides @ ..]) = (shape, strides) else {
        return each(base);
    };
    for index in 0..*length {
        walk(base.wrapping_offset(index * stride), (shape, strides), each);
    }
}

/// # Safety
/// As of `copy_nonoverlapping`.
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, run: usize) {
    // An element of a usual size is one load and one store, not a call.
    match run {
        // SAFETY: the caller's promise; arrays of bytes have no alignment.
        4 => unsafe { copy_nonoverlapping(from.cast::<[u8; 4]>(), to.cast(), 1) },
        // SAFETY: as above.
        8 => unsafe { copy_nonoverlapping(from.cast::<[u8; 8]>(), to.cast(), 1) },
        // SAFETY: the caller's promise.
        _ => unsafe { copy_nonoverlapping(from, to, run) },
    }
}

fn fill(object: &Bound<'_, PyAny>, view: &mut MaybeUninit<ffi::Py_buffer>, flags: c_int) -> c_int {
    // SAFETY: a live object, and room for the answer, which stays where it is: it is in a box.
    unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), view.as_mut_ptr(), flags) }
}

impl Drop for Given {
    fn drop(&mut self) {
        Python::attach(|_| {
            // SAFETY: filled by PyObject_GetBuffer, and released once; the interpreter is attached.
            unsafe { ffi::PyBuffer_Release(&raw mut *self.view) };
        });
    }
}

//! `tw_buffer`: memory of ours that C fills, sends and receives.

use std::ffi::c_void;
use std::ptr::null_mut;
use thalweg_channel::bulk::{self, Buffer, Loan};

use crate::error::{Failure, Status, TwError};
use crate::guard;
use crate::handle::{self, Handle};

/// What is behind a `tw_buffer`.
#[derive(Debug)]
pub enum Memory {
    /// This process's alone.
    Own(Buffer),
    /// What a mechanism may hand over without a copy.
    Lent(Loan),
}

/// `tw_buffer`, opaque to C.
pub type TwBuffer = Handle<Memory>;

impl Memory {
    fn bytes(&mut self) -> &mut [u8] {
        match self {
            Self::Own(buffer) => buffer,
            Self::Lent(loan) => loan,
        }
    }
}

/// Zeroed memory that is resident already.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_buffer_new(
    length: usize,
    buffer: *mut *mut TwBuffer,
    error: *mut TwError,
) -> Status {
    let body = || {
        // SAFETY: the caller's promise.
        let buffer = unsafe { handle::place(buffer, "buffer") }?;
        let made = bulk::buffer(length).map_err(|errno| Failure::system("mmap", errno))?;
        *buffer = handle::hand_out(Memory::Own(made));
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard::run(error, body) }
}

/// Its first byte; null for null.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_buffer_data(buffer: *mut TwBuffer) -> *mut c_void {
    let start = |memory: &mut Memory| Ok(memory.bytes().as_mut_ptr().cast());
    // SAFETY: the caller's promise.
    unsafe { handle::with(buffer, "", start) }.unwrap_or(null_mut())
}

/// Its length; 0 for null.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_buffer_length(buffer: *const TwBuffer) -> usize {
    // SAFETY: the caller's promise.
    unsafe { handle::with(buffer, "", |memory| Ok(memory.bytes().len())) }.unwrap_or(0)
}

/// Gives a buffer back.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_buffer_free(buffer: *mut TwBuffer) {
    // SAFETY: the caller's promise.
    unsafe { handle::close(buffer) };
}

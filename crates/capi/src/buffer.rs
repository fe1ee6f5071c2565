//! `tw_buffer`: memory of this library, which C fills, sends or receives.

use std::ffi::c_void;
use std::ptr::null_mut;
use thalweg_channel::bulk::{self, Buffer, Loan};

use crate::error::{CallFailure, TwError, TwStatus};
use crate::guard::guarded;
use crate::handle::{self, Handle};

/// The contents of a `tw_buffer`.
#[derive(Debug)]
pub enum BufferMemory {
    /// Memory that is private to this process.
    Own(Buffer),
    /// Memory that a mechanism may pass to the receiver without a copy.
    Lent(Loan),
}

/// `tw_buffer`, opaque to C.
pub type TwBuffer = Handle<BufferMemory>;

impl BufferMemory {
    fn bytes(&mut self) -> &mut [u8] {
        match self {
            Self::Own(buffer) => buffer,
            Self::Lent(loan) => loan,
        }
    }
}

/// Allocates zeroed, resident memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_buffer_new(
    length: usize,
    buffer: *mut *mut TwBuffer,
    error: *mut TwError,
) -> TwStatus {
    guarded!(error, {
        handle::create(buffer, "buffer", || {
            let made = bulk::buffer(length).map_err(|errno| CallFailure::system("mmap", errno))?;
            Ok(BufferMemory::Own(made))
        })
    })
}

/// Returns the address of the first byte; null for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_buffer_data(buffer: *mut TwBuffer) -> *mut c_void {
    let start = |memory: &mut BufferMemory| Ok(memory.bytes().as_mut_ptr().cast());
    // SAFETY: Guaranteed by the caller.
    unsafe { handle::with(buffer, "", start) }.unwrap_or(null_mut())
}

/// Returns the length in bytes; 0 for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_buffer_length(buffer: *const TwBuffer) -> usize {
    // SAFETY: Guaranteed by the caller.
    unsafe { handle::with(buffer, "", |memory| Ok(memory.bytes().len())) }.unwrap_or(0)
}

/// Frees a buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_buffer_free(buffer: *mut TwBuffer) {
    // SAFETY: Guaranteed by the caller.
    unsafe { handle::close(buffer) };
}

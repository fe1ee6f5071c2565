//! `tw_buffer`: memory of this library, which C fills, sends or receives.

use std::ffi::c_void;
use std::ptr::null_mut;
use thalweg_channel::bulk::{self, Buffer, Loan};

use crate::error::CallFailure;
use crate::guard::exported;
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

exported! {
    /// Allocates zeroed, resident memory.
    fn tw_buffer_new(length: usize, buffer: *mut *mut TwBuffer) {
        handle::create(buffer, "buffer", || {
            let made = bulk::buffer(length).map_err(|errno| CallFailure::system("mmap", errno))?;
            Ok(BufferMemory::Own(made))
        })
    }

    /// Returns the address of the first byte; null for null.
    fn tw_buffer_data(buffer: *mut TwBuffer) -> *mut c_void {
        let start = |memory: &mut BufferMemory| Ok(memory.bytes().as_mut_ptr().cast());
        handle::with(buffer, "", start).unwrap_or(null_mut())
    }

    /// Returns the length in bytes; 0 for null.
    fn tw_buffer_length(buffer: *const TwBuffer) -> usize {
        handle::with(buffer, "", |memory| Ok(memory.bytes().len())).unwrap_or(0)
    }

    /// Frees a buffer.
    fn tw_buffer_free(buffer: *mut TwBuffer) -> () {
        handle::close(buffer);
    }
}

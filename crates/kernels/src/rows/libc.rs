//! What every program uses: the C library. The row every other one has to beat.

use crate::table::{ALWAYS, Fill, Head, Kernel, first};

pub const COPY: Kernel = Kernel {
    name: "libc",
    summary: "memcpy and memmove of the C library",
    is_available: ALWAYS,
    copy,
    move_: Some(move_),
    head: Some(Head { least: 0, copy: first_copy, move_: Some(first_move) }),
};

pub const FILL: Fill =
    Fill { name: "libc", summary: "memset of the C library", is_available: ALWAYS, fill };

#[cfg(not(miri))]
mod c {
    use core::ffi::c_void;

    // Declared here rather than taken from the libc crate: this crate has no dependencies.
    unsafe extern "C" {
        pub fn memcpy(dst: *mut c_void, src: *const c_void, n: usize) -> *mut c_void;
        pub fn memmove(dst: *mut c_void, src: *const c_void, n: usize) -> *mut c_void;
        pub fn memset(dst: *mut c_void, byte: core::ffi::c_int, n: usize) -> *mut c_void;
    }
}

/// # Safety
/// The contract of [`Kernel::copy`].
pub unsafe fn copy(dst: *mut u8, src: *const u8, n: usize) {
    // Miri's memcpy takes no pointer that leads nowhere, even for nothing at all; that of every C library
    // does, as the compiler itself expects of it. The other two it does not know.
    #[cfg(miri)]
    // SAFETY: the same contract.
    unsafe {
        src.copy_to_nonoverlapping(dst, n);
    }
    #[cfg(not(miri))]
    // SAFETY: the same contract.
    unsafe {
        c::memcpy(dst.cast(), src.cast(), n);
    }
}

/// # Safety
/// The contract of [`Kernel::move_`].
pub unsafe fn move_(dst: *mut u8, src: *const u8, n: usize) {
    #[cfg(miri)]
    // SAFETY: the same contract.
    unsafe {
        src.copy_to(dst, n);
    }
    #[cfg(not(miri))]
    // SAFETY: the same contract.
    unsafe {
        c::memmove(dst.cast(), src.cast(), n);
    }
}

first!(first_copy, copy, copy_beyond);
first!(first_move, move_, move_beyond);

/// # Safety
/// The contract of [`Fill::fill`].
pub unsafe fn fill(dst: *mut u8, byte: u8, n: usize) {
    #[cfg(miri)]
    // SAFETY: the same contract.
    unsafe {
        dst.write_bytes(byte, n);
    }
    #[cfg(not(miri))]
    // SAFETY: the same contract.
    unsafe {
        c::memset(dst.cast(), byte.into(), n);
    }
}

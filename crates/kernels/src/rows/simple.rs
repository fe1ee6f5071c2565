//! The textbook loop: one byte at a time. The compiler is prevented from optimising it.

use core::ffi::c_int;

use crate::row::{ALWAYS, Fill, Kernel};
use crate::word::opaque;

pub const COPY: Kernel = Kernel {
    name: "simple",
    summary: "one byte at a time, never compiled to a call or to vectors",
    is_available: ALWAYS,
    copy,
    move_: Some(move_),
};

pub const FILL: Fill = Fill {
    name: "simple",
    summary: "one byte at a time, never compiled to a call or to vectors",
    is_available: ALWAYS,
    fill,
};

/// # Safety
/// The contract of [`Kernel::copy`].
unsafe extern "C" fn copy(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    for i in 0..n {
        // SAFETY: `i < n`, and the caller guarantees that `n` bytes are readable and writable.
        unsafe { byte(dst, src, i) };
        opaque();
    }
    dst
}

/// # Safety
/// The contract of [`Kernel::move_`].
unsafe extern "C" fn move_(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    if dst.addr().wrapping_sub(src.addr()) >= n {
        // SAFETY: the sink does not start inside the source, so a byte is read before it is overwritten.
        return unsafe { copy(dst, src, n) };
    }
    for i in (0..n).rev() {
        // SAFETY: as in `copy`.
        unsafe { byte(dst, src, i) };
        opaque();
    }
    dst
}

/// # Safety
/// `src + i` is readable and `dst + i` writable.
#[inline(always)]
unsafe fn byte(dst: *mut u8, src: *const u8, i: usize) {
    // SAFETY: the caller guarantees that it is readable.
    let value = unsafe { src.wrapping_add(i).read() };
    // SAFETY: the caller guarantees that it is writable.
    unsafe { dst.wrapping_add(i).write(value) };
}

/// # Safety
/// The contract of [`Fill::fill`].
unsafe extern "C" fn fill(dst: *mut u8, byte: c_int, n: usize) -> *mut u8 {
    for i in 0..n {
        // SAFETY: `i < n`, and the caller guarantees that `n` bytes are writable.
        unsafe { dst.wrapping_add(i).write(byte as u8) };
        opaque();
    }
    dst
}

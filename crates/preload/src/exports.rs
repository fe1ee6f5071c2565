//! The functions that a program finds here before it looks in libc.

use core::ffi::{c_int, c_void};

use crate::{dispatch, raw};

/// # Safety
/// memcpy(3).
#[cfg_attr(thalweg_object, unsafe(no_mangle))]
pub unsafe extern "C" fn memcpy(dst: *mut c_void, src: *const c_void, n: usize) -> *mut c_void {
    // SAFETY: guaranteed by the caller.
    unsafe { dispatch::copy(dst.cast(), src.cast(), n) }.cast()
}

/// # Safety
/// mempcpy(3).
#[cfg_attr(thalweg_object, unsafe(no_mangle))]
pub unsafe extern "C" fn mempcpy(dst: *mut c_void, src: *const c_void, n: usize) -> *mut c_void {
    // SAFETY: guaranteed by the caller.
    unsafe { dispatch::copy(dst.cast(), src.cast(), n) };
    dst.wrapping_byte_add(n)
}

/// # Safety
/// memmove(3).
#[cfg_attr(thalweg_object, unsafe(no_mangle))]
pub unsafe extern "C" fn memmove(dst: *mut c_void, src: *const c_void, n: usize) -> *mut c_void {
    // SAFETY: guaranteed by the caller.
    unsafe { dispatch::move_(dst.cast(), src.cast(), n) }.cast()
}

/// # Safety
/// memset(3).
#[cfg_attr(thalweg_object, unsafe(no_mangle))]
pub unsafe extern "C" fn memset(dst: *mut c_void, byte: c_int, n: usize) -> *mut c_void {
    // SAFETY: guaranteed by the caller.
    unsafe { dispatch::fill(dst.cast(), byte, n) }.cast()
}

/// # Safety
/// memcpy(3); `room` is the size of the sink as known to the compiler.
#[cfg_attr(thalweg_object, unsafe(no_mangle))]
pub unsafe extern "C" fn __memcpy_chk(
    dst: *mut c_void,
    src: *const c_void,
    n: usize,
    room: usize,
) -> *mut c_void {
    check(n, room);
    // SAFETY: guaranteed by the caller.
    unsafe { memcpy(dst, src, n) }
}

/// # Safety
/// mempcpy(3); `room` is the size of the sink as known to the compiler.
#[cfg_attr(thalweg_object, unsafe(no_mangle))]
pub unsafe extern "C" fn __mempcpy_chk(
    dst: *mut c_void,
    src: *const c_void,
    n: usize,
    room: usize,
) -> *mut c_void {
    check(n, room);
    // SAFETY: guaranteed by the caller.
    unsafe { mempcpy(dst, src, n) }
}

/// # Safety
/// memmove(3); `room` is the size of the sink as known to the compiler.
#[cfg_attr(thalweg_object, unsafe(no_mangle))]
pub unsafe extern "C" fn __memmove_chk(
    dst: *mut c_void,
    src: *const c_void,
    n: usize,
    room: usize,
) -> *mut c_void {
    check(n, room);
    // SAFETY: guaranteed by the caller.
    unsafe { memmove(dst, src, n) }
}

/// # Safety
/// memset(3); `room` is the size of the sink as known to the compiler.
#[cfg_attr(thalweg_object, unsafe(no_mangle))]
pub unsafe extern "C" fn __memset_chk(
    dst: *mut c_void,
    byte: c_int,
    n: usize,
    room: usize,
) -> *mut c_void {
    check(n, room);
    // SAFETY: guaranteed by the caller.
    unsafe { memset(dst, byte, n) }
}

/// Ends the program as glibc does, before a write past the end.
#[inline]
fn check(n: usize, room: usize) {
    if n > room {
        raw::abort_because(b"*** buffer overflow detected ***: terminated\n");
    }
}

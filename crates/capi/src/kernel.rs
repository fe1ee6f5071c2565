//! Memory to memory: `tw_memcpy` and its family.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use thalweg_kernels::{KERNELS, Kernel, tuned};

use crate::error::Status;

/// # Safety
/// As memcpy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_memcpy(
    destination: *mut c_void,
    source: *const c_void,
    length: usize,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { tuned::copy_by_size(destination.cast(), source.cast(), length) }.cast()
}

/// What copies every size, as a pointer that follows what is installed. A program may hold it in its own memory
/// instead of ours, as it may `environ`: this name reaches it there, and `tuned`, which is another crate's, is not it.
#[unsafe(no_mangle)]
pub static tw_memcpy_now: AtomicPtr<c_void> = AtomicPtr::new(libc::memcpy as *mut c_void);

/// The first band of `tuned`, for callers who test its end by themselves: `struct tw_first_band`.
#[repr(C)]
#[derive(Debug)]
pub struct FirstBand {
    upto: AtomicUsize,
    run: AtomicPtr<c_void>,
}

/// Where such callers find it; held as `tw_memcpy_now` is.
#[unsafe(no_mangle)]
pub static tw_memcpy_first: FirstBand = FirstBand {
    upto: AtomicUsize::new(usize::MAX),
    run: AtomicPtr::new(libc::memcpy as *mut c_void),
};

/// Has callers who jump by themselves follow what is installed.
pub(crate) fn follow_installed() {
    // What serves a band serves any size rightly: a caller may see one of the words before the other.
    tw_memcpy_now.store(tuned::copies() as *mut c_void, Ordering::Release);
    tw_memcpy_first.run.store(tuned::first_copies() as *mut c_void, Ordering::Release);
    // PAIRS WITH: the load in thalweg.h: who is led to tw_memcpy by it finds the bands there.
    tw_memcpy_first.upto.store(tuned::first_copies_upto(), Ordering::Release);
}

/// What callers find there.
#[cfg(test)]
pub(crate) fn first_band() -> (usize, usize) {
    let run = tw_memcpy_first.run.load(Ordering::Acquire);
    (tw_memcpy_first.upto.load(Ordering::Acquire), run.addr())
}

/// # Safety
/// As memmove.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_memmove(
    destination: *mut c_void,
    source: *const c_void,
    length: usize,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { tuned::move_by_size(destination.cast(), source.cast(), length) }.cast()
}

/// # Safety
/// As memset.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_memset(
    destination: *mut c_void,
    byte: c_int,
    length: usize,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { tuned::fill_by_size(destination.cast(), byte, length) }.cast()
}

/// # Safety
/// As memcpy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_memcpy_crc32c(
    destination: *mut c_void,
    source: *const c_void,
    length: usize,
    crc: u32,
) -> u32 {
    let row = thalweg_kernels::Checksum::first();
    // SAFETY: the caller's promise; `first` gives an available row.
    unsafe { (row.copy)(destination.cast(), source.cast(), length, crc) }
}

/// # Safety
/// `source` can be read for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_crc32c(source: *const c_void, length: usize, crc: u32) -> u32 {
    let row = thalweg_kernels::Checksum::first();
    // SAFETY: the caller's promise; `first` gives an available row.
    unsafe { (row.sum)(source.cast(), length, crc) }
}

/// # Safety
/// As memcpy; and what was written to `destination` can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_memcpy_xxh3(
    destination: *mut c_void,
    source: *const c_void,
    length: usize,
) -> u64 {
    let row = thalweg_kernels::Hash::first();
    // SAFETY: the caller's promise; `first` gives an available row.
    unsafe { (row.copy)(destination.cast(), source.cast(), length) }
}

/// # Safety
/// `source` can be read for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_xxh3(source: *const c_void, length: usize) -> u64 {
    let row = thalweg_kernels::Hash::first();
    // SAFETY: the caller's promise; `first` gives an available row.
    unsafe { (row.sum)(source.cast(), length) }
}

/// How many kernels there are.
#[unsafe(no_mangle)]
pub extern "C" fn tw_kernel_count() -> usize {
    KERNELS.len()
}

/// The name of a kernel, or null.
#[unsafe(no_mangle)]
pub extern "C" fn tw_kernel_name(index: usize) -> *const c_char {
    text_of(index, |kernel| kernel.name)
}

/// The summary of a kernel, or null.
#[unsafe(no_mangle)]
pub extern "C" fn tw_kernel_summary(index: usize) -> *const c_char {
    text_of(index, |kernel| kernel.summary)
}

fn text_of(index: usize, field: fn(&'static Kernel) -> &'static str) -> *const c_char {
    let text = KERNELS.get(index).map(|kernel| crate::mechanism::forever(field(kernel)));
    text.map_or(std::ptr::null(), CStr::as_ptr)
}

/// Whether this processor runs a kernel.
#[unsafe(no_mangle)]
pub extern "C" fn tw_kernel_is_available(index: usize) -> c_int {
    KERNELS.get(index).is_some_and(|kernel| (kernel.is_available)()).into()
}

/// memcpy by one kernel.
///
/// # Safety
/// As memcpy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_memcpy_by(
    index: usize,
    destination: *mut c_void,
    source: *const c_void,
    length: usize,
) -> Status {
    let Some(kernel) = KERNELS.get(index) else { return Status::Usage };
    let Some(ready) = kernel.ready() else { return Status::Unsupported };
    // SAFETY: the caller's promise.
    unsafe { ready.copy_raw(destination.cast(), source.cast(), length) };
    Status::Ok
}

//! Memory copies: `tw_memcpy` and related functions.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use thalweg_kernels::{Checksum, Hash, KERNELS, tuned};

use crate::error::TwStatus;
use crate::guard::exported;
use crate::text::text_or_null;

exported! {
    /// # Safety
    /// The requirements of memcpy apply.
    fn tw_memcpy(destination: *mut c_void, source: *const c_void, length: usize) -> *mut c_void {
        tuned::copy_by_size(destination.cast(), source.cast(), length).cast()
    }
}

/// The function that copies any size. It changes when a profile installs kernels. The symbol must be defined in this
/// crate, because a program may have the variable in its own memory instead of the library's (a copy relocation, as for
/// `environ`). Only the symbol then refers to the right instance.
#[unsafe(no_mangle)]
pub static tw_memcpy_now: AtomicPtr<c_void> = AtomicPtr::new(libc::memcpy as *mut c_void);

/// The first size band of `tuned`, for callers that compare the size themselves. Declared in C as `struct
/// tw_first_band`.
#[repr(C)]
#[derive(Debug)]
pub struct FirstBand {
    upto: AtomicUsize,
    run: AtomicPtr<c_void>,
}

/// The instance of `FirstBand` that C programs read. It is defined in this crate for the same reason as
/// `tw_memcpy_now`.
#[unsafe(no_mangle)]
pub static tw_memcpy_first: FirstBand = FirstBand {
    upto: AtomicUsize::new(usize::MAX),
    run: AtomicPtr::new(libc::memcpy as *mut c_void),
};

/// Updates the function pointers that C programs read.
pub(crate) fn follow_installed() {
    // The pointers need not change together, because each kernel is correct for any size.
    tw_memcpy_now.store(tuned::copies() as *mut c_void, Ordering::Release);
    tw_memcpy_first.run.store(tuned::first_copies() as *mut c_void, Ordering::Release);
    // PAIRS WITH: the load of `upto` in thalweg.h. A caller that reads the new limit and then calls tw_memcpy uses the
    // new bands.
    tw_memcpy_first.upto.store(tuned::first_copies_upto(), Ordering::Release);
}

/// Returns the values in `tw_memcpy_first`: the limit, and the address of the function.
#[cfg(test)]
pub(crate) fn first_band() -> (usize, usize) {
    let run = tw_memcpy_first.run.load(Ordering::Acquire);
    (tw_memcpy_first.upto.load(Ordering::Acquire), run.addr())
}

exported! {
    /// # Safety
    /// The requirements of memcpy apply.
    fn tw_memmove(destination: *mut c_void, source: *const c_void, length: usize) -> *mut c_void {
        tuned::move_by_size(destination.cast(), source.cast(), length).cast()
    }

    /// # Safety
    /// The requirements of memset apply.
    fn tw_memset(destination: *mut c_void, byte: c_int, length: usize) -> *mut c_void {
        tuned::fill_by_size(destination.cast(), byte, length).cast()
    }

    /// # Safety
    /// The requirements of memcpy apply.
    fn tw_memcpy_crc32c(
        destination: *mut c_void,
        source: *const c_void,
        length: usize,
        crc: u32,
    ) -> u32 {
        // `first` returns a row that this processor supports.
        (Checksum::first().copy)(destination.cast(), source.cast(), length, crc)
    }

    /// # Safety
    /// `source` must be readable for `length` bytes.
    fn tw_crc32c(source: *const c_void, length: usize, crc: u32) -> u32 {
        (Checksum::first().sum)(source.cast(), length, crc)
    }

    /// # Safety
    /// The requirements of memcpy apply. `destination` must also be readable.
    fn tw_memcpy_xxh3(destination: *mut c_void, source: *const c_void, length: usize) -> u64 {
        (Hash::first().copy)(destination.cast(), source.cast(), length)
    }

    /// # Safety
    /// `source` must be readable for `length` bytes.
    fn tw_xxh3(source: *const c_void, length: usize) -> u64 {
        (Hash::first().sum)(source.cast(), length)
    }
}

/// Returns the number of kernels.
#[unsafe(no_mangle)]
pub extern "C" fn tw_kernel_count() -> usize {
    KERNELS.len()
}

/// Returns the name of the kernel at `index`, or null if `index` is out of range.
#[unsafe(no_mangle)]
pub extern "C" fn tw_kernel_name(index: usize) -> *const c_char {
    text_or_null(KERNELS.get(index).map(|kernel| kernel.name))
}

/// Returns the summary of the kernel at `index`, or null if `index` is out of range.
#[unsafe(no_mangle)]
pub extern "C" fn tw_kernel_summary(index: usize) -> *const c_char {
    text_or_null(KERNELS.get(index).map(|kernel| kernel.summary))
}

/// Returns 1 if this processor supports the kernel at `index`, otherwise 0.
#[unsafe(no_mangle)]
pub extern "C" fn tw_kernel_is_available(index: usize) -> c_int {
    KERNELS.get(index).is_some_and(|kernel| (kernel.is_available)()).into()
}

/// Copies memory by the kernel at `index`.
///
/// # Safety
/// The requirements of memcpy apply.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_memcpy_by(
    index: usize,
    destination: *mut c_void,
    source: *const c_void,
    length: usize,
) -> TwStatus {
    let Some(kernel) = KERNELS.get(index) else { return TwStatus::Usage };
    let Some(ready) = kernel.ready() else { return TwStatus::Unsupported };
    // SAFETY: Guaranteed by the caller.
    unsafe { ready.copy_raw(destination.cast(), source.cast(), length) };
    TwStatus::Ok
}
